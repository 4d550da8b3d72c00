; What compiled kernels need from outside: memory, and fmod.  sqrt, floor, fabs and copysign are instructions of WebAssembly.
target triple = "wasm32-unknown-unknown"

@__heap_base = external global i8
@top = internal global ptr @__heap_base  ; start of the unused memory

declare i32 @llvm.wasm.memory.size.i32(i32)
declare i32 @llvm.wasm.memory.grow.i32(i32, i32)
declare double @llvm.fabs.f64(double)
declare double @llvm.copysign.f64(double, double)
declare void @llvm.trap()

; Memory above the data and the stack is a stack of blocks: allocate(size) appends a block and returns its address, a
; multiple of 16; release(address) frees this block and all later ones.
define i32 @allocate(i32 %size) noinline {
  %old = load ptr, ptr @top
  %number = ptrtoint ptr %old to i32
  %rounded = add i32 %number, 15
  %start = and i32 %rounded, -16
  %end = add i32 %start, %size
  %wraps = icmp ult i32 %end, %start
  br i1 %wraps, label %full, label %fits
fits:
  %pages = call i32 @llvm.wasm.memory.size.i32(i32 0)
  %last = add i32 %end, 65535
  %needed = lshr i32 %last, 16
  %enough = icmp ule i32 %needed, %pages
  br i1 %enough, label %done, label %grow
grow:
  %more = sub i32 %needed, %pages
  %before = call i32 @llvm.wasm.memory.grow.i32(i32 0, i32 %more)
  %failed = icmp eq i32 %before, -1
  br i1 %failed, label %full, label %done
full:
  call void @llvm.trap()
  unreachable
done:
  %new = inttoptr i32 %end to ptr
  store ptr %new, ptr @top
  ret i32 %start
}

define void @release(i32 %address) {
  %new = inttoptr i32 %address to ptr
  store ptr %new, ptr @top
  ret void
}

; Numba's allocator.  Arrays that a kernel allocates stay until the caller of the entry releases them.  A MemInfo has the
; fields: i64 number of references, ptr destructor, ptr its argument, ptr data, i64 size.
define ptr @NRT_MemInfo_alloc_safe_aligned(i64 %size, i32 %align) {
  %bytes = trunc i64 %size to i32
  %total = add i32 %bytes, 32
  %address = call i32 @allocate(i32 %total)
  %info = inttoptr i32 %address to ptr
  %field = getelementptr i8, ptr %info, i32 16
  %data = getelementptr i8, ptr %info, i32 32
  store i64 1, ptr %info
  store ptr %data, ptr %field
  ret ptr %info
}

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %info = call ptr @NRT_MemInfo_alloc_safe_aligned(i64 %size, i32 %align)
  ret ptr %info
}

define ptr @NRT_MemInfo_alloc(i64 %size) {
  %info = call ptr @NRT_MemInfo_alloc_safe_aligned(i64 %size, i32 16)
  ret ptr %info
}

define ptr @NRT_MemInfo_new_varsize_dtor(i64 %size, ptr %destructor) {
  %info = call ptr @NRT_MemInfo_alloc_safe_aligned(i64 %size, i32 16)
  ret ptr %info
}

define void @NRT_MemInfo_call_dtor(ptr %info) {
  ret void
}

define ptr @NRT_Allocate(i64 %size) {
  %bytes = trunc i64 %size to i32
  %address = call i32 @allocate(i32 %bytes)
  %data = inttoptr i32 %address to ptr
  ret ptr %data
}

define void @NRT_Free(ptr %data) {
  ret void
}

; Only profiling reads the clock.
define i32 @clock_gettime(i32 %clock, ptr %time) {
  ret i32 0
}

; Only messages of exceptions need these.
@PyExc_RuntimeError = global ptr null
define void @PyErr_SetString(ptr %class, ptr %message) {
  call void @llvm.trap()
  unreachable
}
define double @log10(double %x) {
  call void @llvm.trap()
  unreachable
}

; Remainder of x / y with the sign of x.  Subtracting y times falling powers of two is exact at each step: the difference of
; two doubles within a factor of two of each other is a double.
define double @fmod(double %x, double %y) {
entry:
  %dividend = call double @llvm.fabs.f64(double %x)
  %divisor = call double @llvm.fabs.f64(double %y)
  %smaller = fcmp olt double %dividend, %divisor
  br i1 %smaller, label %unchanged, label %check
unchanged:
  ret double %x
check:
  %finite = fcmp olt double %dividend, 0x7FF0000000000000
  %divides = fcmp ogt double %divisor, 0.0
  %valid = and i1 %finite, %divides
  br i1 %valid, label %scale, label %invalid
invalid:
  ret double 0x7FF8000000000000
scale:
  %multiple = phi double [ %divisor, %check ], [ %twice, %double ]
  %half = fmul double %dividend, 0.5
  %fits = fcmp ole double %multiple, %half
  br i1 %fits, label %double, label %reduce
double:
  %twice = fmul double %multiple, 2.0
  br label %scale
reduce:
  %rest = phi double [ %dividend, %scale ], [ %next, %subtract ]
  %step = phi double [ %multiple, %scale ], [ %halved, %subtract ]
  %again = fcmp oge double %step, %divisor
  br i1 %again, label %subtract, label %done
subtract:
  %larger = fcmp oge double %rest, %step
  %difference = fsub double %rest, %step
  %next = select i1 %larger, double %difference, double %rest
  %halved = fmul double %step, 0.5
  br label %reduce
done:
  %result = call double @llvm.copysign.f64(double %rest, double %x)
  ret double %result
}
