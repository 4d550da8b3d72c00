"""Kernels as WebAssembly: ``python -m nppsim.wasm`` builds the binaries of this folder; ``kernels.js`` calls them."""
