# mypy: disable-error-code="no-untyped-call"
"""Compilation of kernels and their parts: a part becomes machine code only within kernels.

By default numba optimises every function and makes machine code of it, with all that it calls, and
does so again in each caller. Half of the time of compiling went into that. Here a part stays as
it was translated, but for a light optimisation that makes it smaller; the kernel that calls it is
optimised and turned into machine code as a whole.

This relies on numba's ``pipeline_class``, which may add and drop passes, and on its ``Dispatcher``
and ``CodeLibrary``.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import binding  # type: ignore[import-untyped]
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import AnnotateTypes


class _NoEnvironment:
    """Machine code's link to its module's globals; a part has no machine code."""

    @staticmethod
    def set_env(name: str, environment: object) -> None:
        """Do nothing."""


class _Library(JITCodeLibrary):
    def _optimize_functions(self, ll_module: Any) -> None:
        # Numba's way is to optimise each function fully here, and again as part of its kernel.
        ll_module.data_layout = self._codegen._data_layout
        builder = binding.create_pass_builder(self._codegen._tm, _tuning(speed_level=1))
        passes = builder.getFunctionPassManager()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)


def _tuning(speed_level: int) -> Any:
    # Loops are short here, and say themselves where they work on several numbers at a time:
    # unrolled or vectorised once more they are slower, and take twice as long to compile.
    tuning = binding.create_pipeline_tuning_options(speed_level=speed_level)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    return tuning


class PartLibrary(_Library):
    """The code of a part and of what it calls, for kernels to take in."""

    @property
    def codegen(self) -> type[_NoEnvironment]:
        """A stand-in that numba may tell about the part's globals."""
        return _NoEnvironment

    def finalize(self) -> None:
        """Take in the parts that this one calls."""
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int | None:
        """The function that Python calls instead of the part: it raises ``TypeError``."""
        return ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value


class KernelLibrary(_Library):
    """The code of a kernel and of all its parts, optimised at once."""

    def _optimize_final_module(self) -> None:
        builder = binding.create_pass_builder(self._codegen._tm, _tuning(speed_level=3))
        builder.getModulePassManager().run(self._final_module, builder)


class _LibraryPass(LoweringPass):
    """Choose the library that the code of a function goes to."""

    library: type[JITCodeLibrary]

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Choose before the code is written."""
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _PartPass(_LibraryPass):
    _name = "part_library"
    library = PartLibrary


@register_pass(mutates_CFG=False, analysis_only=False)
class _KernelPass(_LibraryPass):
    _name = "kernel_library"
    library = KernelLibrary


UNUSED = {
    *("WithLifting", "InlineClosureLikes", "MakeFunctionToJitFunction", "InlineInlinables"),
    *("RewriteDynamicRaises", "FindLiterallyCalls", "LiteralUnroll", "InlineOverloads"),
    *("LiteralPropagationSubPipelinePass", "NopythonRewrites", "DumpParforDiagnostics"),
}
"""Passes for closures, contexts, whole arrays and the like, of which kernels have none."""


class _Pipeline(CompilerBase):
    library_pass: type[_LibraryPass]

    def define_pipelines(self) -> list[PassManager]:
        """Numba's passes for what kernels may contain, and ours before code is written."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [entry for entry in passes.passes if entry[0].__name__ not in UNUSED]
        passes.add_pass_after(self.library_pass, AnnotateTypes)
        passes.finalize()
        return [passes]


class PartPipeline(_Pipeline):
    """For functions that only kernels call."""

    library_pass = _PartPass


class KernelPipeline(_Pipeline):
    """For kernels, which Python calls."""

    library_pass = _KernelPass


class PartDispatcher(CPUDispatcher):
    """Compiles a part once for all constants of a type; it is optimised for each in its kernel."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Types of arguments and result, once the part is compiled for them."""
        named = {name: types.unliteral(kind) for name, kind in dict(kws).items()}
        return super().get_call_template([types.unliteral(kind) for kind in args], named)
