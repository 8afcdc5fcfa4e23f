"""How kernels are compiled: each is translated once and stops at LLVM's text, and is optimised only
inside the entry that holds it. Numba's own way, machine code of every function and again in each of
its callers, does three times that work."""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder


class _WithoutEnvironment:
    """The code generator, which does not tell running code of the kernel about its globals."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, env_name: str, env: Any) -> None:
        """Nothing of it runs by itself."""


class KernelLibrary(JITCodeLibrary):
    """A kernel in LLVM's text, neither optimised nor made machine code of."""

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self._linked: Any = None

    @property
    def codegen(self) -> Any:
        """Where it belongs to."""
        return _WithoutEnvironment(self._codegen)

    def _ensure_finalized(self) -> None:
        """It is never finished; its callers are."""

    def add_llvm_module(self, ll_module: Any) -> None:
        """Take in what was translated, as it is."""
        self._final_module.link_in(ll_module)

    def get_pointer_to_function(self, name: str) -> int:
        """No function of it has an address."""
        return 0

    def _get_module_for_linking(self) -> Any:
        """This kernel together with all it calls, each once."""
        if self._linked is None:
            whole = super()._get_module_for_linking().clone()
            for library in self._called({}):
                own = (
                    JITCodeLibrary._get_module_for_linking(library)
                    if isinstance(library, KernelLibrary)
                    else library._get_module_for_linking()
                )
                whole.link_in(own, preserve=True)
            self._linked = whole
        return self._linked

    def _called(self, seen: dict[Any, None]) -> dict[Any, None]:
        for library in self._linking_libraries:
            if library not in seen:
                seen[library] = None
                if isinstance(library, KernelLibrary):
                    library._called(seen)
        return seen


class EntryLibrary(JITCodeLibrary):
    """An entry with all kernels it calls, optimised as one: each that is called once is taken into
    its caller. Numba would optimise everything a first time for reference counts, of which kernels
    have none."""

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


class KernelCompiler(CompilerBase):
    """Numba's pipeline with a library of the kind above at its end."""

    library: type[JITCodeLibrary] = KernelLibrary

    def define_pipelines(self) -> list[Any]:
        """The usual passes."""
        state: Any = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        return [DefaultPassBuilder.define_nopython_pipeline(state)]


class EntryCompiler(KernelCompiler):
    """The same for an entry."""

    library = EntryLibrary

    def define_pipelines(self) -> list[Any]:
        """The usual passes."""
        passes = super().define_pipelines()
        state: Any = self.state
        state.library.enable_object_caching()  # it affects the usual library only
        return passes
