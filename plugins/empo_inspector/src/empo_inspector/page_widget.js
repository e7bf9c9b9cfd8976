// The page of a run in a frame; its selection, which its address holds, is that of the widget.

const chosen = (hash) => Object.fromEntries([...new URLSearchParams(hash.slice(1))].map(([key, value]) => [key, isNaN(value) ? value : +value]));

function render({model, el}) {
	const frame = document.createElement("iframe");
	const show = () => {
		const wanted = new URLSearchParams(model.get("selection")).toString(), {location} = frame.contentWindow;
		if (wanted && wanted !== location.hash.slice(1)) location.hash = wanted;
	};
	frame.title = "inspector";
	frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 0`;
	frame.srcdoc = model.get("page");
	frame.addEventListener("load", () => {
		const {contentWindow} = frame;
		contentWindow.addEventListener("hashchange", () => {
			model.set("selection", chosen(contentWindow.location.hash));
			model.save_changes();
		});
		show();
	});
	model.on("change:selection", show);
	el.append(frame);
	return () => model.off("change:selection", show);
}

export default {render};
