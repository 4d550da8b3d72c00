# An image whose command is nppsim; docs/quickstart.md has the commands.
# Steps and commands for the processor were tried in a chroot with Debian 12 and its Python 3.11 (2026-11-29), not with Docker.
#   docker build -t nppsim .                                                                        for the processor
#   docker build -t nppsim:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 .    for NVIDIA GPUs
# The CUDA libraries come with PyTorch's wheels, and the driver from the host (--gpus all): both images begin alike.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim-bookworm
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=train,video,onnx,studio
COPY --from=wheel /wheels /wheels
COPY constraints.txt /wheels/constraints.txt
RUN set -- /wheels/*.whl \
    && pip install --no-cache-dir --extra-index-url "${TORCH_INDEX}" -c /wheels/constraints.txt "$1[${EXTRAS}]" \
    && rm -r /wheels \
    && useradd --uid 1000 --create-home player \
    && mkdir --mode 1777 /work /cache
ENV NUMBA_CACHE_DIR=/cache
USER player
WORKDIR /work
VOLUME /cache
ENTRYPOINT ["nppsim"]
CMD ["--help"]
