"""Numba target for wasm32: compiles unchanged kernels to LLVM modules for WebAssembly, and executes nothing.

    use_wasm32()  # from here on, all kernels of this process are compiled for wasm32
    module = compile_entry(simulate._run, argument_types, "run")

Arrays have the same records as on a 64-bit processor: ``intp`` has 64 bits.  Only pointers have 32 bits.

Numba has no public interface for such a target.  The private names of Numba that this module uses are in PRIVATE_NAMES.
"""

import sys
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import caching, codegen, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys

TRIPLE = "wasm32-unknown-unknown"
# All browsers since 2021 have these features.
FEATURES = "+bulk-memory,+mutable-globals,+nontrapping-fptoint,+sign-ext"
PRIVATE_NAMES = (
    "numba.core.base:BaseContext.get_arg_packer",
    "numba.core.caching:NullCache",
    "numba.core.codegen:CPUCodegen._create_empty_module",
    "numba.core.codegen:CPUCodegen._get_host_cpu_name",
    "numba.core.codegen:CPUCodegen._init",
    "numba.core.codegen:CPUCodegen._module_pass_manager",
    "numba.core.codegen:CPUCodegen._scan_and_fix_unresolved_refs",
    "numba.core.codegen:CPUCodeLibrary._ensure_finalized",
    "numba.core.codegen:CPUCodeLibrary._optimize_final_module",
    "numba.core.codegen:JITCodeLibrary._finalize_specific",
    "numba.core.codegen:JITCPUCodegen._add_module",
    "numba.core.codegen:JITCPUCodegen._library_class",
    "numba.core.cpu:CPUContext.create_cfunc_wrapper",
    "numba.core.cpu:CPUContext.create_cpython_wrapper",
    "numba.core.cpu:CPUContext.get_executable",
    *(
        f"numba.core.registry:cpu_target.target_context._internal_codegen.{name}"
        for name in ("_data_layout", "_engine", "_loopvect", "_opt_level", "_target_data", "_tm", "_tm_features")
    ),
    "numba.core.runtime.nrt:rtsys._init",
)


def target_machine() -> llvm.TargetMachine:
    """Return LLVM's target machine for wasm32."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu="generic", features=FEATURES, opt=3, reloc="static", codemodel="default")


class _NoEngine:
    """Replaces the execution engine, which would load machine code into this process."""

    def finalize_object(self) -> None:
        pass


class _Library(codegen.JITCodeLibrary):
    def _optimize_final_module(self) -> None:  # ``optimise`` does this for all entries of a module together
        pass


class _Codegen(codegen.JITCPUCodegen):
    _library_class = _Library

    def _init(self, llvm_module: llvm.ModuleRef) -> None:
        self._tm, self._tm_features = target_machine(), FEATURES
        self._target_data = self._tm.target_data
        self._data_layout = str(self._target_data)
        self._engine: Any = _NoEngine()
        self._loopvect, self._opt_level = False, 0

    def _create_empty_module(self, name: str) -> ir.Module:
        module = super()._create_empty_module(name)
        module.triple = TRIPLE
        return module

    def _add_module(self, module: llvm.ModuleRef) -> None:
        pass

    def _scan_and_fix_unresolved_refs(self, module: llvm.ModuleRef) -> None:
        pass

    def _get_host_cpu_name(self) -> str:
        return "generic"


def use_wasm32() -> None:
    """Compile for wasm32 in this process, which must not have compiled anything before; nothing can be executed then."""
    if rtsys._init:
        raise RuntimeError("this process has compiled kernels for its own processor; build in a new one")
    context: Any = cpu_target.target_context
    context._internal_codegen = _Codegen("nppsim.wasm")
    # The context requires a built-in function, a different one for each kernel.
    context.get_executable = lambda library, fndesc, env: [].append
    context.create_cpython_wrapper = context.create_cfunc_wrapper = lambda *_, **__: None
    for module in [module for name, module in sys.modules.items() if name.startswith("nppsim.")]:
        for value in vars(module).values():
            if isinstance(value, Dispatcher):
                dispatcher: Any = value
                dispatcher._cache = caching.NullCache()
                vars(dispatcher).pop(
                    "compile", None
                )  # of ``nppsim._numba.decorators``, for the cache of native kernels


def compile_entry(kernel: Any, arguments: Sequence[types.Type], name: str) -> tuple[list[str], types.Type]:
    """Compile a kernel; return LLVM modules that define it and a function NAME, and the type of its result.

    ``i32 NAME(arguments, results)`` takes addresses of slots of 8 bytes, and returns 1 if the kernel raised an exception.
    An array takes the slots meminfo, parent, number of items, item size, data, shape, strides; a tuple those of its items.
    """
    kernel.compile(tuple(arguments))
    compiled = kernel.overloads[tuple(arguments)]
    with global_compiler_lock:
        compiled.library._ensure_finalized()
        code = [compiled.library.get_llvm_str(), _wrapper(compiled, name)]
    return code, compiled.signature.return_type


def _wrapper(compiled: Any, name: str) -> str:
    """Return LLVM code of the function NAME that ``compile_entry`` describes."""
    context, descriptor = compiled.target_context, compiled.fndesc
    module = context.create_module(f"{name}.wrapper")
    slots = ir.IntType(64).as_pointer()
    function = ir.Function(module, ir.FunctionType(ir.IntType(32), [slots, slots]), name)
    builder = ir.IRBuilder(function.append_basic_block())
    packer = context.get_arg_packer(descriptor.argtypes)
    values = []
    for index, kind in enumerate(packer.argument_types):
        place = builder.gep(function.args[0], [ir.IntType(32)(index)])
        values.append(builder.load(builder.bitcast(place, kind.as_pointer())))
    kernel = ir.Function(
        module, context.call_conv.get_function_type(descriptor.restype, descriptor.argtypes), descriptor.llvm_func_name
    )
    arguments = packer.from_arguments(builder, values)
    status, result = context.call_conv.call_function(
        builder, kernel, descriptor.restype, descriptor.argtypes, arguments
    )
    for index, value in enumerate(_leaves(builder, result)):
        place = builder.gep(function.args[1], [ir.IntType(32)(index)])
        if isinstance(value.type, ir.IntType) and value.type.width < 64:
            value = builder.sext(value, ir.IntType(64))
        builder.store(value, builder.bitcast(place, value.type.as_pointer()))
    builder.ret(builder.zext(status.is_error, ir.IntType(32)))
    return str(module)


def _leaves(builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    """List the numbers and pointers of a value, structures and arrays included."""
    if not isinstance(value.type, ir.Aggregate):
        return [value]
    parts = [builder.extract_value(value, index) for index in range(len(value.type))]
    return [leaf for part in parts for leaf in _leaves(builder, part)]


def optimise(module: llvm.ModuleRef, exported: set[str]) -> None:
    """Optimise a linked module of which only the functions ``exported`` are called from outside."""
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in exported:
            value.linkage = "internal"
    generator: Any = cpu_target.target_context._internal_codegen
    for options in ({"cost": "cheap", "opt": 0, "loop_vectorize": False, "slp_vectorize": False}, {}):
        manager, builder = generator._module_pass_manager(**options)  # the order of Numba's own two passes
        manager.run(module, builder)
