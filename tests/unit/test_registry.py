import pytest

from empo_core import Component, Config
from empo_core.errors import DuplicateComponentError, PluginLoadError, UnknownComponentError
from empo_core.plugins.hookspecs import Kind
from empo_core.plugins.registry import Offer, Provider, Registry


class Params(Config):
    weight: float = 1.0


def offer(distribution: str, name: str, kind: Kind = "aggregator") -> Offer:
    component = Component(kind=kind, name=name, params=Params, target="nowhere:X", api=1)
    return Offer(Provider(distribution, "1.0", distribution), component)


@pytest.fixture
def registry() -> Registry:
    names = ["scatter-add", "loop"]
    return Registry([*(offer("empo-a", name) for name in names), offer("empo-a", "csv", "tracker")])


def test_a_component_is_found_by_kind_and_name(registry: Registry) -> None:
    assert registry.get("aggregator", "loop").name == "loop"
    assert registry.offer("tracker", "csv").provider.distribution == "empo-a"


def test_names_are_sorted_and_belong_to_one_kind(registry: Registry) -> None:
    assert registry.names("aggregator") == ["loop", "scatter-add"]
    assert registry.names("tracker") == ["csv"]
    assert registry.names("algorithm") == []


def test_an_unknown_name_gets_the_closest_one_and_all_that_are_installed(
    registry: Registry,
) -> None:
    with pytest.raises(UnknownComponentError) as caught:
        registry.get("aggregator", "scater-add")
    assert str(caught.value) == (
        "No aggregator named 'scater-add'. Did you mean 'scatter-add'? "
        "Installed: loop, scatter-add."
    )


def test_an_unknown_name_like_no_other_gets_no_suggestion(registry: Registry) -> None:
    with pytest.raises(UnknownComponentError) as caught:
        registry.get("algorithm", "exact")
    assert str(caught.value).startswith("No algorithm named 'exact'. Installed: none. ")
    assert "'empo new-plugin NAME --kind algorithm'" in str(caught.value)


def test_the_name_of_a_component_of_another_kind_is_told(registry: Registry) -> None:
    with pytest.raises(UnknownComponentError, match="tracker"):
        registry.get("aggregator", "csv")


def test_an_unknown_name_lists_the_plugins_that_could_not_be_used() -> None:
    broken = Provider("empo-b", "1.0", "empo-b", "importing empo_b raises ValueError: no")
    with pytest.raises(UnknownComponentError) as caught:
        Registry([], [broken]).get("tracker", "csv")
    assert str(caught.value).endswith(
        "Plugin empo-b is unusable and may provide it: importing empo_b raises ValueError: no"
    )


def test_a_name_of_two_providers_is_refused_and_both_are_named() -> None:
    registry = Registry([offer("empo-a", "x"), offer("empo-b", "x"), offer("empo-b", "y")])
    message = (
        "aggregator 'x' is provided by both empo-a and empo-b. "
        "Uninstall all but one, or set EMPO_BLOCK_PLUGINS=empo-b. "
        "If one of them is yours, rename what it offers."
    )
    with pytest.raises(DuplicateComponentError) as caught:
        registry.get("aggregator", "x")
    assert str(caught.value) == message
    assert registry.clashes() == [message]
    assert registry.get("aggregator", "y").name == "y"


def test_a_name_of_three_providers_is_resolved_by_blocking_two() -> None:
    registry = Registry([offer("empo-a", "x"), offer("empo-b", "x"), offer("empo-c", "x")])
    (clash,) = registry.clashes()
    assert "empo-a and empo-b and empo-c" in clash
    assert "EMPO_BLOCK_PLUGINS=empo-b,empo-c" in clash


def test_one_name_may_serve_two_kinds() -> None:
    registry = Registry([offer("empo-a", "x"), offer("empo-b", "x", "tracker")])
    assert registry.clashes() == []
    assert registry.offer("tracker", "x").provider.distribution == "empo-b"


def test_params_given_by_their_place_are_imported_when_they_are_needed() -> None:
    def component(place: str) -> Component:
        return Component(kind="aggregator", name="a", params=place, target="nowhere:X", api=1)

    assert component("empo_core:Config").params_model() is Config
    with pytest.raises(PluginLoadError, match=r"aggregator 'a' .*'nowhere_at_all:Params'"):
        component("nowhere_at_all:Params").params_model()
    with pytest.raises(PluginLoadError, match=r"aggregator 'a' .*pydantic"):
        component("empo_core:run").params_model()
