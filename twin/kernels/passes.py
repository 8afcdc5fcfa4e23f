"""How kernels are compiled: each is translated once and stops at LLVM's text, and is optimised only
inside the entry that holds it. Numba's own way, machine code of every function and again in each of
its callers, does three times that work."""

import gc
from importlib import import_module
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags

# Cost, in LLVM's units, up to which a kernel with several callers is inlined: with half of LLVM's
# own 225, optimising takes a sixth less time and runs are as fast.
INLINED = 100


class _WithoutEnvironment:
    """Code generator that does not store the kernel's globals in running code."""

    def __init__(self, codegen: Any) -> None:
        """codegen: numba's code generator, which does all else."""
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        """Attributes of the wrapped code generator."""
        return getattr(self._codegen, name)

    def set_env(self, env_name: str, env: Any) -> None:
        """Store nothing: globals of a kernel are not needed in running code."""


class KernelLibrary(JITCodeLibrary):
    """Library of a kernel as LLVM text, neither optimised nor compiled to machine code."""

    def __init__(self, codegen: Any, name: str) -> None:
        """codegen: numba's code generator; name: of the library."""
        super().__init__(codegen, name)
        self._linked: Any = None

    @property
    def codegen(self) -> Any:
        """The library's code generator in a form that stores no globals."""
        return _WithoutEnvironment(self._codegen)

    def _ensure_finalized(self) -> None:
        """Make no machine code: only entries, which contain this kernel, are finalised."""

    def add_llvm_module(self, ll_module: Any) -> None:
        """Link an LLVM module of the kernel into the library, not optimised."""
        self._final_module.link_in(ll_module)

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: functions of kernels have no address."""
        return 0

    def _get_module_for_linking(self) -> Any:
        """LLVM module of this kernel and of all kernels that it calls, each once."""
        if self._linked is None:
            module = super()._get_module_for_linking().clone()
            for library in self._called_libraries({}):
                callee_module = (
                    JITCodeLibrary._get_module_for_linking(library)
                    if isinstance(library, KernelLibrary)
                    else library._get_module_for_linking()
                )
                module.link_in(callee_module, preserve=True)
            self._linked = module
        return self._linked

    def _called_libraries(self, seen: dict[Any, None]) -> dict[Any, None]:
        """Libraries that this kernel calls, also through other kernels; adds them to `seen`."""
        for library in self._linking_libraries:
            if library not in seen:
                seen[library] = None
                if isinstance(library, KernelLibrary):
                    library._called_libraries(seen)
        return seen


class EntryLibrary(JITCodeLibrary):
    """Library of an entry with all kernels it calls, optimised together: a kernel that is called
    once is inlined. Numba's first optimisation is skipped: kernels have no reference counts."""

    def _optimize_final_module(self) -> None:
        """Make kernels internal to the module, so that LLVM may inline them; then optimise it."""
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
                # The JIT's linker knows internal functions by name too: one of another entry, from
                # disk, with other arguments since its optimisation, may have the same number.
                function.name = f"internal.{function.name}"
        llvm_binding: Any = import_module("llvmlite.binding")  # it has no types
        tuning_options = llvm_binding.create_pipeline_tuning_options(speed_level=3)  # numba's own
        tuning_options.loop_vectorization, tuning_options.slp_vectorization = True, False
        tuning_options.inlining_threshold = INLINED
        pass_builder = llvm_binding.create_pass_builder(self._codegen._tm, tuning_options)
        module_passes = pass_builder.getModulePassManager()
        module_passes.add_refprune_pass()
        module_passes.run(self._final_module, pass_builder)


class KernelFlags(Flags):
    """Compiler options that compare by what was set: numba looks up every operator by them."""

    __slots__ = ()

    def __hash__(self) -> int:
        """Hash of the values that were set."""
        return hash(frozenset(self._values))

    def __eq__(self, other: object) -> bool:
        """Whether the same values were set."""
        return isinstance(other, Flags) and self._values == other._values


class KernelCompiler(CompilerBase):
    """Numba's compiler pipeline with `KernelLibrary` as its library."""

    library: type[JITCodeLibrary] = KernelLibrary

    def __init__(self, *args: Any) -> None:
        """args: those of numba's compiler; its options are compared by value from here on."""
        super().__init__(*args)
        state: Any = self.state
        state.flags = KernelFlags(state.flags)
        state.flags.no_cfunc_wrapper = True  # C calls no kernel

    def define_pipelines(self) -> list[Any]:
        """Numba's compiler passes, for our library."""
        state: Any = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        return [DefaultPassBuilder.define_nopython_pipeline(state)]


class EntryCompiler(KernelCompiler):
    """Numba's compiler pipeline with `EntryLibrary` as its library."""

    library = EntryLibrary

    def compile_extra(self, func: Any) -> Any:
        """Compile a function while Python's collector of reference cycles is off."""
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(func)
        finally:
            if is_collecting:
                gc.enable()

    def define_pipelines(self) -> list[Any]:
        """Numba's compiler passes, for a library whose machine code can be stored on disk."""
        pass_lists = super().define_pipelines()
        state: Any = self.state
        state.library.enable_object_caching()  # it affects the usual library only
        return pass_lists
