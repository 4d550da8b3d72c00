"""Hardware plans: sizes, memory, speed, sources, errors, and the command line."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hardware import (
    PROFILES,
    Gpu,
    Machine,
    PlanError,
    PlanRequest,
    Timings,
    detect,
    measure_update,
    plan,
)
from hardware.machine import GB, KNOWN_GPUS, known_gpu
from hardware.memory import CACHED_GRAPH_BYTES, TRANSITION_BYTES, observation_bytes
from hardware.sizes import DEVICE_SHARE, HOST_SHARE
from hardware.throughput import network_costs
from nppsim.observe import layout
from rl.experiment.plan import measured_plan
from rl.policy.architectures import ALIASES, ARCHITECTURES, get_architecture

from places import ROOT
from programs import load_script

main = load_script("hardware_plan").main

LAPTOP = Machine("Xeon", 2, 25 * GB, 20 * GB, bf16="AMX")
A100 = Gpu("A100-80GB", 80 * GB, bf16=True)
V100 = Gpu("V100-32GB", 32 * GB, bf16=False)
SERVER = Machine("EPYC", 16, 128 * GB, 120 * GB, gpus=(A100,))

machines = st.builds(
    lambda cores, memory, gpus, gpu_memory: Machine(
        "any",
        cores,
        int(memory * GB),
        int(memory * GB),
        gpus=(Gpu("any", int(gpu_memory * GB), True),) * gpus,
        present=False,
    ),
    st.integers(1, 256),
    st.floats(0.5, 2000),
    st.sampled_from([0, 0, 1, 2, 8]),
    st.floats(0.2, 100),
)
observations = st.sampled_from([layout.ALL, layout.VISION_FREE, ("game_state",)])
sizes = st.none() | st.integers(1, 5000) | st.sampled_from([32, 64, 128, 256, 512, 1024, 4096])
flags = st.fixed_dictionaries({"num_envs": sizes, "rollout_length": sizes, "minibatch_size": sizes})


def plan_for(name, machine, **request):
    """Plan of an architecture."""
    network = get_architecture(name)
    more = {"stacking": network.stacking, "carried_bytes": network.carried_bytes}
    return plan(network.observations, PlanRequest(**request), architecture=name, machine=machine, **more)


# --- sizes on a CPU: these trained best on a 2-core Xeon with AMX ---


@pytest.mark.parametrize(
    ("observations", "steps", "expected"),
    [(layout.VISION_FREE, 10_000_000, (512, 64, 4096, 3)), (layout.ALL, 2_000_000, (128, 64, 1024, 2))],
)
def test_plan_for_two_cores(observations, steps, expected):
    chosen = plan(observations, PlanRequest(total_timesteps=steps), machine=LAPTOP)
    assert (chosen.num_envs, chosen.rollout_length, chosen.minibatch_size, chosen.epochs) == expected
    assert (chosen.precision, chosen.torch_threads, chosen.simulator_threads, chosen.device) == ("bf16", 2, 2, "cpu")
    assert chosen.warnings == ()


# --- sizes on GPUs: by modelled or measured throughput ---

NAMES = list(dict.fromkeys((*ARCHITECTURES, *ALIASES.values())))


def server(gpu, **changes):
    return replace(SERVER, gpus=(replace(known_gpu(gpu), **changes),), present=False)


def test_plan_model_agrees_with_the_h200():
    """45,500 decisions/s were measured with mlp_baseline (hardware/data.toml)."""
    chosen = plan_for("mlp_baseline", server("H200"), num_envs=512, rollout_length=64, minibatch_size=4096)
    assert chosen.speed.decisions_per_s == pytest.approx(45_500, rel=0.15)


@pytest.mark.parametrize("gpu", KNOWN_GPUS)
def test_plan_on_each_gpu_depends_on_the_network_and_has_a_duration(gpu):
    plans = {name: plan_for(name, server(gpu)) for name in NAMES}
    assert all(made.speed.decisions_per_s > 1000 for made in plans.values())
    assert plans["full_hgt"].num_envs < plans["vision_free"].num_envs
    assert len({(made.num_envs, made.minibatch_size) for made in plans.values()}) > 1


def test_plan_on_a_faster_gpu_has_more_environments():
    envs = [plan_for("mlp_baseline", server(gpu)).num_envs for gpu in ("T4", "A100-40GB", "H200")]
    assert envs == sorted(envs) and envs[0] < envs[-1]


@pytest.mark.parametrize("gpu", [None, "T4", "H100"])
def test_plan_at_4_gb_gives_larger_networks_no_more_environments(gpu):
    if gpu is None:
        machine = replace(LAPTOP, memory_bytes=4 * GB)
    else:
        machine = server(gpu, memory_bytes=4 * GB)
    plans = {name: plan_for(name, machine) for name in NAMES}
    for reads_images in (False, True):
        group = [name for name in NAMES if ("player_frame" in get_architecture(name).observations) == reads_images]
        group.sort(key=lambda name: network_costs(name, get_architecture(name).observations).sample_us)
        envs = [plans[name].num_envs for name in group]
        assert envs == sorted(envs, reverse=True), dict(zip(group, envs, strict=True))


def test_plan_chooses_environments_by_measured_throughput():
    speeds = {128: 100.0, 256: 180.0, 512: 300.0, 1024: 320.0, 2048: 1000.0}
    chosen = plan(layout.VISION_FREE, machine=SERVER, throughput=lambda sizes: speeds[sizes.num_envs])
    assert (chosen.num_envs, chosen.settings["num_envs"].source) == (512, "measurement"), "1024 gains 7 %"
    assert plan(layout.VISION_FREE, machine=SERVER, throughput=lambda sizes: 0.0).num_envs == 128
    assert plan(layout.VISION_FREE, machine=LAPTOP, throughput=lambda sizes: 1 / 0).num_envs == 512


def test_plan_model_agrees_with_a_probe_of_this_cpu(one_thread):
    """By processor time, since other tests may run: sizes of the plan are as fast as half and twice as many environments."""
    from rl.experiment.plan import timed_ppo

    machine = replace(detect(), cores=1)
    chosen = plan_for("vision_free", machine, precision="float32", torch_threads=1, device="cpu")
    rates = {}
    for num_envs in (64, 256, 512):
        sizes = {"num_envs": num_envs, "rollout_length": 32, "minibatch_size": 8 * num_envs}
        made = plan_for("vision_free", machine, precision="float32", torch_threads=1, device="cpu", **sizes)
        ppo = timed_ppo("vision_free", made, updates=1)
        rates[num_envs] = made.batch_size / ppo.cpu_seconds
        assert 0.25 < rates[num_envs] / made.speed.decisions_per_s < 4
    assert rates[chosen.num_envs] > 0.7 * max(rates.values())


def test_plan_with_evaluator_adds_memory_and_no_training_threads():
    usual = plan(layout.VISION_FREE, PlanRequest(total_timesteps=10_000_000), machine=LAPTOP)
    beside = plan(layout.VISION_FREE, PlanRequest(total_timesteps=10_000_000, evaluator=True), machine=LAPTOP)
    assert (usual.evaluator_threads, beside.evaluator_threads) == (None, 1)
    assert beside.torch_threads == usual.torch_threads and beside.simulator_threads == usual.simulator_threads
    assert beside.host_bytes - usual.host_bytes == 1_500_000_000
    assert "evaluator_threads" in str(beside) and "evaluator_threads" not in str(usual)
    assert plan(layout.VISION_FREE, PlanRequest(evaluator=True), machine=SERVER).evaluator_threads == SERVER.cores // 4
    alone = plan(layout.VISION_FREE, PlanRequest(evaluator=True), machine=replace(LAPTOP, cores=1))
    assert any("one core" in warning for warning in alone.warnings)


def test_plan_for_short_runs_has_smaller_updates():
    def batch(steps):
        return plan(layout.VISION_FREE, PlanRequest(total_timesteps=steps), machine=LAPTOP).batch_size

    assert [batch(steps) for steps in (3_000, 100_000, 2_000_000, 4_000_000, 10_000_000)] == [
        2_048,
        8_192,
        8_192,
        16_384,
        32_768,
    ]


# --- properties ---


@settings(deadline=None)
@given(machine=machines, observations=observations, flags=flags, steps=st.none() | st.integers(1, 10**9))
@example(machine=LAPTOP, observations=layout.ALL, flags={"num_envs": 14}, steps=1_000_000)
def test_plan_fits_divides_and_honours_flags_or_is_refused(machine, observations, flags, steps):
    try:
        chosen = plan(observations, PlanRequest(total_timesteps=steps, **flags), machine=machine)
    except PlanError:
        return
    assert chosen.batch_size % chosen.minibatch_size == 0
    assert sum(row.bytes for row in chosen.memory if row.where == "host") <= HOST_SHARE * machine.memory_bytes
    if chosen.gpus:
        used = sum(row.bytes for row in chosen.memory if row.where == "device")
        assert used <= DEVICE_SHARE * machine.gpus[0].memory_bytes
    for name, value in flags.items():
        if value is None:
            assert chosen.settings[name].source in {"default", "memory limit"}
        else:
            assert chosen.settings[name].value == value
            assert chosen.settings[name].source == "flag"
    if flags.get("rollout_length") is None:
        assert 32 <= chosen.rollout_length <= 256
    assert all(setting.source for setting in chosen.settings.values())


@settings(deadline=None)
@given(
    observations=st.sampled_from([layout.ALL, layout.VISION_FREE]),
    num_envs=st.integers(1, 2048),
    profile=st.sampled_from(["auto", "cpu-testing"]),
)
def test_plan_accepts_any_number_of_environments(observations, num_envs, profile):
    roomy = Machine("any", 8, 1000 * GB, 1000 * GB)
    assert plan(observations, PlanRequest(num_envs=num_envs, profile=profile), machine=roomy).num_envs == num_envs


# --- sources ---


def test_plan_flag_overrides_the_profile():
    chosen = plan(layout.ALL, PlanRequest(profile="1xA100-80GB", num_envs=100, learning_rate=1e-3), machine=SERVER)
    sources = {name: setting.source for name, setting in chosen.settings.items()}
    assert (chosen.num_envs, sources["num_envs"]) == (100, "flag")
    assert (chosen.learning_rate, sources["learning_rate"]) == (1e-3, "flag")
    assert (chosen.rollout_length, sources["rollout_length"]) == (64, "profile 1xA100-80GB")
    assert (chosen.minibatch_size, sources["minibatch_size"]) == (800, "default")
    assert "is incompatible with the flags" in chosen.settings["minibatch_size"].note


def test_plan_all_flags_override_the_profile():
    given = {
        "epochs": 7,
        "torch_threads": 3,
        "simulator_threads": 5,
        "precision": "float32",
        "device": "cpu",
        "learning_rate": 1e-4,
    }
    chosen = plan(
        layout.ALL,
        PlanRequest(profile="1xA100-80GB", **given),
        machine=SERVER,
        benchmark=lambda size, candidates: 1 / 0,
    )
    for name, value in given.items():
        assert getattr(chosen, name) == value
        assert chosen.settings[name].source == "flag"


def test_plan_with_little_memory_reduces_sizes():
    small = replace(LAPTOP, memory_bytes=int(2.5 * GB), available_bytes=int(2.5 * GB))
    chosen = plan(layout.ALL, machine=small)
    assert chosen.settings["num_envs"].source == "memory limit"
    assert chosen.settings["num_envs"].note == "128 would be better, but does not fit into memory"
    assert chosen.num_envs < 128


def test_plan_with_measured_update_limits_the_minibatch():
    update = measure_update(lambda samples: 2 * GB + samples * 20_000_000, layout.VISION_FREE)
    chosen = plan(layout.VISION_FREE, machine=SERVER, update=update)
    assert chosen.minibatch_size == 2048  # (0.9 x 80 - 2) GB / 20 MB = 3500 samples; the estimate would allow 4096
    assert chosen.settings["minibatch_size"].source == "memory limit"
    row = next(row for row in chosen.memory if row.name == "network update")
    assert row.where == "device" and row.how.endswith("measurement")
    assert row.bytes == 2 * GB + 2048 * 20_000_000


def test_measure_update_counts_at_least_the_observations():
    update = measure_update(lambda samples: GB, layout.ALL)
    assert update.bytes_per_sample == 3 * observation_bytes(layout.ALL)
    assert update.total(64) == GB
    assert update.total(256) > GB


def benchmark(wall, processor=None, others=0.0):
    """Pretends to time updates; wall, processor: candidate -> seconds."""

    def run(minibatch_size, candidates):
        assert minibatch_size == 4096
        return Timings(
            [wall[candidate] for candidate in candidates],
            [(processor or wall)[candidate] for candidate in candidates],
            others,
        )

    return run


def test_compute_is_the_fastest_candidate():
    by_threads = {1: 1.0, 2: 0.7, 4: 0.69, 6: 3.0}
    wall = {("float32", n): 3 * s for n, s in by_threads.items()} | {("bf16", n): s for n, s in by_threads.items()}
    chosen = plan(layout.VISION_FREE, machine=replace(LAPTOP, cores=6, bf16=""), benchmark=benchmark(wall))
    assert (chosen.torch_threads, chosen.precision) == (2, "bf16"), "1 % is not worth two more threads"
    assert {chosen.settings[name].source for name in ("torch_threads", "precision")} == {"measurement"}
    assert chosen.settings["torch_threads"].note == (
        "update of 4096, float32 by threads 1: 3000 ms, 2: 2100 ms, 4: 2070 ms, 6: 9000 ms; "
        "bf16 by threads 1: 1000 ms, 2: 700 ms, 4: 690 ms, 6: 3000 ms"
    )


def test_compute_on_a_busy_machine_compares_processor_time():
    wall = {("float32", 1): 1.0, ("float32", 2): 3.0, ("bf16", 1): 1.2, ("bf16", 2): 2.0}
    for bf16, precision in ((0.3, "bf16"), (0.88, "float32")):  # bf16 needs a minimum gain
        processor = {(name, n): 0.9 if name == "float32" else bf16 for name, n in wall}
        chosen = plan(layout.VISION_FREE, machine=LAPTOP, benchmark=benchmark(wall, processor, others=0.6))
        assert (chosen.torch_threads, chosen.precision) == (2, precision)
        assert chosen.settings["torch_threads"].note.startswith("not compared: other programs used 60%")


@pytest.mark.parametrize(
    ("plan_request", "expected"), [({"torch_threads": 1}, (1, "bf16")), ({"precision": "float32"}, (2, "float32"))]
)
def test_compute_requested_values_are_not_timed(plan_request, expected):
    times = {("float32", 1): 3.0, ("float32", 2): 2.0, ("bf16", 1): 2.0, ("bf16", 2): 1.0}
    raced = []

    def run(minibatch_size, candidates):
        raced.extend(candidates)
        return benchmark(times)(minibatch_size, candidates)

    chosen = plan(layout.VISION_FREE, PlanRequest(**plan_request), machine=LAPTOP, benchmark=run)
    assert (chosen.torch_threads, chosen.precision) == expected
    ((name, value),) = plan_request.items()
    assert chosen.settings[name].source == "flag"
    assert len(raced) == 2 and value in {candidate for candidates in raced for candidate in candidates}


def test_precision_without_timings_follows_the_hardware():
    assert plan(layout.ALL, machine=replace(LAPTOP, bf16="")).precision == "float32"
    assert plan(layout.ALL, machine=replace(LAPTOP, bf16="AVX512-BF16")).precision == "bf16"
    on_gpu = plan(layout.ALL, machine=SERVER, benchmark=lambda size, candidates: 1 / 0)
    assert (on_gpu.device, on_gpu.precision, on_gpu.torch_threads) == ("cuda", "bf16", 1)
    assert plan(layout.ALL, machine=replace(SERVER, gpus=(V100,))).precision == "float32"


# --- the memory model ---


def test_rollout_buffer_bytes_by_hand():
    chosen = plan(layout.ALL, PlanRequest(num_envs=128, rollout_length=64), machine=LAPTOP)
    buffer = next(row for row in chosen.memory if row.name == "rollout buffer")
    assert observation_bytes(layout.IMAGES) == 84 * 84 + 176 * 100
    assert buffer.bytes == 128 * 64 * (observation_bytes(layout.ALL) + TRANSITION_BYTES)


def test_memory_on_gpus_excludes_update_and_rollout_from_the_host():
    two = replace(SERVER, gpus=(A100,) * 2)
    both = [
        plan(layout.ALL, PlanRequest(num_envs=512, rollout_length=64, processes=count), machine=two) for count in (1, 2)
    ]
    for made in both:
        where = {row.name: row.where for row in made.memory}
        assert (where["network update"], where["rollout buffer"], where["environments"]) == ("device", "device", "host")
    one, half = (next(row.bytes for row in made.memory if row.name == "rollout buffer") for made in both)
    assert one == 2 * half == 512 * 64 * (observation_bytes(layout.ALL) + TRANSITION_BYTES)


# --- profiles ---


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # num_envs, rollout_length, minibatch_size, learning_rate, precision, gpus
        ("8xA100-80GB", (1024, 64, 8192, pytest.approx(1.41e-3, rel=0.01), "bf16", 8)),
        ("8xA100-40GB", (768, 64, 6144, pytest.approx(1.22e-3, rel=0.01), "bf16", 8)),
        ("1xA100-80GB", (256, 64, 2048, pytest.approx(7.07e-4, rel=0.01), "bf16", 1)),
        ("8xV100-32GB", (512, 64, 4096, pytest.approx(1e-3, rel=0.01), "float32", 8)),
        ("cpu-testing", (64, 32, 256, None, "float32", 0)),
    ],
)
@pytest.mark.parametrize("observations", [layout.ALL, layout.VISION_FREE])
def test_hardware_profiles_on_matching_machines(name, expected, observations):
    chosen = plan(observations, PlanRequest(profile=name), machine=PROFILES[name].machine())
    found = (chosen.num_envs, chosen.rollout_length, chosen.minibatch_size, chosen.learning_rate, chosen.precision)
    assert (*found, chosen.gpus) == expected
    for setting in ("num_envs", "rollout_length", "minibatch_size"):
        assert chosen.settings[setting].source == f"profile {name}"


def test_profile_of_several_gpus_needs_a_process_for_each():
    eight = replace(SERVER, gpus=(A100,) * 8)
    with pytest.raises(PlanError, match="--num-gpus 8"):
        plan(layout.ALL, PlanRequest(profile="8xA100-80GB"), machine=eight)
    assert plan(layout.ALL, PlanRequest(profile="8xA100-80GB"), machine=replace(eight, present=False)).gpus == 8
    chosen = plan(layout.ALL, PlanRequest(profile="8xA100-80GB", processes=8), machine=eight)
    own = chosen.per_process(8)
    assert (own.num_envs, own.rollout_length, own.minibatch_size) == (128, 64, 1024)
    assert own.learning_rate == chosen.learning_rate
    assert own.simulator_threads == SERVER.cores // 8


def test_plan_for_cpu_processes_divides_cores_and_sizes():
    alone, three = (plan(layout.VISION_FREE, PlanRequest(processes=n, device="cpu"), machine=SERVER) for n in (None, 3))
    assert three.num_envs % 3 == three.minibatch_size % 3 == 0
    assert three.simulator_threads == three.torch_threads == SERVER.cores // 3
    assert three.host_bytes > alone.host_bytes
    with pytest.raises(PlanError, match="multiples of the 3 processes"):
        plan(layout.VISION_FREE, PlanRequest(processes=3, device="cpu", num_envs=64), machine=SERVER)
    with pytest.raises(PlanError, match="2 processes need one GPU each"):
        plan(layout.VISION_FREE, PlanRequest(processes=2, device="cuda"), machine=SERVER)


def test_plan_auto_uses_one_of_several_gpus_and_warns():
    chosen = plan(layout.ALL, machine=replace(SERVER, gpus=(A100,) * 8))
    assert chosen.gpus == 1
    assert any("8 GPUs were found and 1 used: give --num-gpus 8" in warning for warning in chosen.warnings)


def test_profile_without_its_gpu_is_refused():
    with pytest.raises(PlanError, match="needs 1 GPU.*use 'auto'"):
        plan(layout.ALL, PlanRequest(profile="1xA100-80GB"), machine=LAPTOP)


# --- errors and warnings ---


@pytest.mark.parametrize(
    ("plan_request", "message"),
    [
        ({"num_envs": 0}, "num_envs=0"),
        ({"total_timesteps": -5}, "total_timesteps=-5"),
        ({"precision": "fp8"}, "unknown precision 'fp8'; known: float32, bf16"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": "cuda"}, "use 'cpu'"),
        ({"profile": "8xA100"}, "did you mean '8xA100-"),
        ({"num_envs": 128, "rollout_length": 64, "minibatch_size": 1000}, "8192 decisions of an update; try 1024"),
        ({"num_envs": 10, "minibatch_size": 1009}, "choose a power of two"),
        ({"num_envs": 10**6}, r"lower --num-envs.*num_envs=1000000.*without images"),
        ({"minibatch_size": 2**20, "num_envs": 2**15, "rollout_length": 32}, "lower the minibatch size"),
    ],
)
def test_plan_errors_name_value_and_remedy(plan_request, message):
    with pytest.raises(PlanError, match=message):
        plan(layout.ALL, PlanRequest(**plan_request), machine=LAPTOP)


@pytest.mark.parametrize(
    ("plan_request", "warning"),
    [
        ({"total_timesteps": 1_000_000, "num_envs": 1024, "rollout_length": 128}, "only 8 updates"),
        ({"num_envs": 14}, "only 14 environments"),
        ({"rollout_length": 8}, "rollouts of 8 decisions"),
        ({"num_envs": 128, "rollout_length": 64, "minibatch_size": 8192}, "minibatch"),
        ({"num_envs": 128, "rollout_length": 64, "minibatch_size": 32}, "256 minibatches of 32"),
    ],
)
def test_plan_warnings(plan_request, warning):
    chosen = plan(layout.ALL, PlanRequest(**plan_request), machine=LAPTOP)
    assert any(warning in text for text in chosen.warnings)


def test_plan_above_free_memory_warns():
    (warning,) = plan(layout.ALL, machine=replace(LAPTOP, available_bytes=GB)).warnings
    assert "only 1.00 GB are free now" in warning


# --- detection ---


def test_detect_this_machine():
    machine = detect()
    assert machine.cores >= 1
    assert 0 < machine.available_bytes <= machine.memory_bytes
    assert machine.cpu in machine.name
    assert machine.present


# --- the command line ---


def run(capsys, *arguments):
    status = main(list(arguments))
    return status, capsys.readouterr()


def test_command_prints_sources(capsys):
    status, printed = run(
        capsys, "--architecture", "mlp_baseline", "--memory-gb", "16", "--cores", "4", "--num-envs", "96"
    )
    assert status == 0
    assert "described, 4 cores" in printed.out
    assert [line.split()[:6] for line in printed.out.splitlines() if line.startswith("| num_envs")] == [
        ["|", "num_envs", "|", "96", "|", "flag"]
    ]
    assert "12.80 GB" in printed.out


def test_command_prints_json(capsys):
    status, printed = run(
        capsys,
        "--architecture",
        "vision_free",
        "--gpus",
        "1",
        "--gpu-memory-gb",
        "24",
        "--json",
        "--total-timesteps",
        "9000000",
    )
    document = json.loads(printed.out)
    assert status == 0
    assert document["settings"]["device"]["value"] == "cuda"
    assert document["device_budget"] == int(0.9 * 24 * GB)
    assert document["updates"] == -(-9_000_000 // document["batch_size"])


def test_command_plans_for_another_machine_of_a_profile(capsys):
    status, printed = run(capsys, "--architecture", "mlp_baseline", "--profile", "8xA100-80GB")
    assert status == 0 and "8 x A100-80GB" in printed.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory-gb", "1"], "error: not enough host memory"),
        (
            ["--gpus", "2", "--cores", "4", "--profile", "cpu"],
            "unknown hardware profile 'cpu'; known: 8xA100-80GB",
        ),
        (["--cores", "-3"], "--cores -3: give a whole number of at least 1"),
        (["--architecture", "mlp_basline"], "did you mean 'mlp_baseline'"),
        (["--gpu", "V100-32G"], "unknown GPU 'V100-32G'; known: GTX-1080-Ti"),
        (["--gpus", "2"], "--gpus 2:"),
        (["--gpus", "0", "--gpu", "V100-32GB"], "--gpus 0: contradicts --gpu"),
        (["--measure", "--cores", "2"], "--measure:"),
    ],
)
def test_command_errors_are_one_line(capsys, arguments, message):
    status, printed = run(capsys, "--architecture", "mlp_baseline", *arguments)
    assert status == 2
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_command_without_a_name_has_a_row_per_architecture(capsys):
    status, printed = run(capsys, "--memory-gb", "4", "--gpus", "0", "--total-timesteps", "2e6")
    lines = printed.out.splitlines()
    rows = [line.split()[1] for line in lines if line.startswith("| ") and "architecture" not in line]
    assert status == 0 and rows == NAMES
    assert "2 M decisions" in printed.out and "unknown" not in printed.out


def test_command_plans_networks_of_a_plugin(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(ARCHITECTURES, "planned", None)  # so that nothing of it is left afterwards
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from dataclasses import replace\nfrom rl.policy import architectures as a\n"
        "a.register(replace(a.get_architecture('vision_free'), name='planned', fusion=(32,)))\n"
    )
    status, printed = run(capsys, "--plugin", str(plugin), "--architecture", "planned", "--memory-gb", "16")
    assert status == 0 and "minibatch_size" in printed.out
    status, printed = run(capsys, "--plugin", str(tmp_path / "none.py"))
    assert status == 2 and "--plugin" in printed.err and "none.py: cannot be imported" in printed.err


def test_command_lists_architectures_that_do_not_fit(capsys):
    flags = ["--memory-gb", "2.2", "--gpus", "0", "--num-envs", "256", "--architectures", "vision_free", "full_hgt"]
    status, printed = run(capsys, *flags, "--json")
    fits, too_large = json.loads(printed.out)["architectures"]
    assert status == 0 and "settings" in fits and too_large["error"].startswith("not enough host memory")
    _, printed = run(capsys, *flags)
    assert "full_hgt: not enough host memory" in printed.out
    status, printed = run(capsys, "--memory-gb", "0.5", *flags[2:])
    assert status == 2 and "vision_free: not enough host memory" in printed.out


@pytest.mark.parametrize(
    ("name", "close"),
    [
        *(("vision_free", 0.01), ("vision_free_gcn", 0.2), ("vision_free+state4", 0.2)),
        *(("vision_free+gru", 0.01), ("vision_free_gat+subtasks5", 0.01), ("mlp_baseline+visual2", 0.01)),
        ("vision_free_foresight+mirror", 0.2),
    ],
)
def test_stored_memory_agrees_with_a_measured_update(name, close):
    from rl.ppo.update_benchmark import UpdateBenchmark

    network = get_architecture(name)
    stored = network_costs(name, network.observations, network.stacking).update
    measured = measure_update(
        UpdateBenchmark(name, "cpu", "float32").peak_bytes, network.observations, network.stacking
    )
    assert stored.total(4096) == pytest.approx(measured.total(4096), rel=close)


@pytest.mark.parametrize(("name", "carried"), [("vision_free+gru", 256), ("vision_free+subtasks5", 50)])
def test_carried_bytes_equal_those_of_the_buffer(name, carried, one_thread):
    from learners import make_ppo

    def stored(architecture):
        buffer = make_ppo(architecture=architecture)[0].rollout_buffer
        tensors = [*buffer.obs.values(), *(value for key, value in vars(buffer).items() if key != "segments")]
        return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor)) / len(buffer)

    assert stored(name) - stored("vision_free") == get_architecture(name).carried_bytes == carried
    sizes = PlanRequest(num_envs=64, rollout_length=32)
    more, plain = (plan(layout.VISION_FREE, sizes, carried_bytes=n, machine=LAPTOP).memory for n in (carried, 0))
    assert more[0].bytes - plain[0].bytes == 64 * 32 * carried and f"+ {carried} B carried" in more[0].how
    assert more[1].bytes - plain[1].bytes == 2 * 64 * carried


def test_command_accepts_suffixes_of_architectures(capsys):
    names = ["vision_free", "vision_free+gru", "vision_free+subtasks50", "mlp_baseline+visual4", "vision_free+deep2"]
    status, printed = run(capsys, "--architectures", *names, "--memory-gb", "16", "--gpus", "0", "--json")
    rows = {one["architecture"]: one for one in json.loads(printed.out)["architectures"]}
    update = next(row for row in rows["vision_free+gru"]["memory"] if row["name"] == "network update")
    assert status == 0 and update["how"].endswith("figure of vision_free, plus stored figures of +gru")
    assert "256 B carried" in rows["vision_free+gru"]["memory"][0]["how"]
    speeds = {name: rows[name]["speed"]["decisions_per_s"] for name in names}
    assert speeds["vision_free+gru"] < speeds["vision_free"] == speeds["vision_free+deep2"]


def test_memory_of_encoded_graphs():
    plain, graphs = (
        plan(ARCHITECTURES[name].observations, machine=SERVER) for name in ("vision_free", "vision_free_gcn")
    )
    (row,) = (row for row in graphs.memory if row.name == "encoded graphs")
    assert row.where == "device" and row.bytes == 16_384 * CACHED_GRAPH_BYTES
    assert "encoded graphs" not in {row.name for row in plain.memory}


def test_measured_plan_that_does_not_fit_is_an_error():
    with pytest.raises(PlanError, match="not enough"):
        measured_plan("mlp_baseline", PlanRequest(num_envs=65_536, rollout_length=1024), detect())


@pytest.mark.parametrize(("name", "bf16"), [("V100-32GB", False), ("T4", False), ("rtx-3090", True), ("H100", True)])
def test_fast_bf16_by_compute_capability(name, bf16, capsys):
    assert known_gpu(name).bf16 == bf16
    status, printed = run(capsys, "--architecture", "mlp_baseline", "--gpu", name, "--memory-gb", "32", "--json")
    document = json.loads(printed.out)
    assert status == 0 and document["settings"]["precision"]["value"] == ("bf16" if bf16 else "float32")
    assert document["speed"]["decisions_per_s"] > 1000 and document["minutes"] is None
    (update,) = (row for row in document["memory"] if row["name"] == "network update")
    assert update["how"].endswith("stored figure of a CPU, doubled")
    slow = plan(("game_state",), PlanRequest(precision="bf16"), machine=replace(SERVER, gpus=(known_gpu(name),)))
    assert any("has no fast bf16" in warning for warning in slow.warnings) == (not bf16)


def test_command_without_torch():
    code = "import sys, runpy; sys.modules['torch'] = None; runpy.run_path('scripts/hardware_plan.py', run_name='__main__')"
    command = [sys.executable, "-c", code, "--architecture", "vision_free"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "| num_envs" in done.stdout
