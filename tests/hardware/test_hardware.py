"""The plan of environments, rollout and minibatch: it fits, it divides, flags win, and every number says why."""

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
    estimate_update,
    measure_update,
    plan,
)
from hardware.__main__ import main
from hardware.detect import GB
from hardware.figures import stored_figures
from hardware.memory import CACHED_GRAPH_BYTES, TRANSITION_BYTES, observation_bytes
from hardware.profiles import known_gpu
from hardware.sizes import DEVICE_SHARE, HOST_SHARE
from nppsim.observe import layout
from rl.experiment.plan import measured
from rl.policy.architectures import ARCHITECTURES, get_architecture

from places import ROOT

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


# --- measured facts: these sizes trained best on a 2-core Xeon with AMX ---


def test_vision_free_on_two_cores():
    chosen = plan(layout.VISION_FREE, PlanRequest(total_timesteps=10_000_000), machine=LAPTOP)
    assert (chosen.num_envs, chosen.rollout_length, chosen.minibatch_size, chosen.epochs) == (512, 64, 4096, 3)
    assert (chosen.precision, chosen.torch_threads, chosen.simulator_threads, chosen.device) == ("bf16", 2, 2, "cpu")
    assert chosen.warnings == ()


def test_mlp_baseline_on_two_cores():
    chosen = plan(layout.ALL, PlanRequest(total_timesteps=2_000_000), machine=LAPTOP)
    assert (chosen.num_envs, chosen.rollout_length, chosen.minibatch_size, chosen.epochs) == (128, 64, 1024, 2)
    assert (chosen.precision, chosen.torch_threads) == ("bf16", 2)
    assert chosen.updates == 245
    assert chosen.warnings == ()


def test_a_process_that_evaluates_is_planned_for_and_takes_no_thread_of_training():
    usual = plan(layout.VISION_FREE, PlanRequest(total_timesteps=10_000_000), machine=LAPTOP)
    beside = plan(layout.VISION_FREE, PlanRequest(total_timesteps=10_000_000, evaluator=True), machine=LAPTOP)
    assert (usual.evaluator_threads, beside.evaluator_threads) == (None, 1)
    assert beside.torch_threads == usual.torch_threads and beside.simulator_threads == usual.simulator_threads
    assert beside.host_bytes - usual.host_bytes == 1_500_000_000
    assert "evaluator_threads" in str(beside) and "evaluator_threads" not in str(usual)
    assert plan(layout.VISION_FREE, PlanRequest(evaluator=True), machine=SERVER).evaluator_threads == SERVER.cores // 4
    alone = plan(layout.VISION_FREE, PlanRequest(evaluator=True), machine=replace(LAPTOP, cores=1))
    assert any("one core" in warning for warning in alone.warnings)


def test_short_runs_get_smaller_updates():
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
def test_a_plan_fits_divides_and_keeps_the_flags_or_is_refused(machine, observations, flags, steps):
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
def test_any_number_of_environments_alone_can_be_planned(observations, num_envs, profile):
    roomy = Machine("any", 8, 1000 * GB, 1000 * GB)
    assert plan(observations, PlanRequest(num_envs=num_envs, profile=profile), machine=roomy).num_envs == num_envs


# --- sources ---


def test_a_flag_overrides_the_profile():
    chosen = plan(layout.ALL, PlanRequest(profile="1xA100-80GB", num_envs=100, learning_rate=1e-3), machine=SERVER)
    sources = {name: setting.source for name, setting in chosen.settings.items()}
    assert (chosen.num_envs, sources["num_envs"]) == (100, "flag")
    assert (chosen.learning_rate, sources["learning_rate"]) == (1e-3, "flag")
    assert (chosen.rollout_length, sources["rollout_length"]) == (64, "profile 1xA100-80GB")
    assert (chosen.minibatch_size, sources["minibatch_size"]) == (800, "default")
    assert "is incompatible with the flags" in chosen.settings["minibatch_size"].note


def test_all_flags_override_the_profile():
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


def test_a_memory_limit_reduces_sizes_without_a_flag():
    small = replace(LAPTOP, memory_bytes=int(2.5 * GB), available_bytes=int(2.5 * GB))
    chosen = plan(layout.ALL, machine=small)
    assert chosen.settings["num_envs"].source == "memory limit"
    assert chosen.settings["num_envs"].note == "128 would be better, but does not fit into memory"
    assert chosen.num_envs < 128


def test_a_measured_update_decides_the_minibatch_and_is_named():
    update = measure_update(lambda samples: 2 * GB + samples * 20_000_000, layout.VISION_FREE)
    chosen = plan(layout.VISION_FREE, machine=SERVER, update=update)
    assert chosen.minibatch_size == 2048  # (0.9 x 80 - 2) GB / 20 MB = 3500 samples; the estimate would allow 4096
    assert chosen.settings["minibatch_size"].source == "memory limit"
    row = next(row for row in chosen.memory if row.name == "network update")
    assert row.where == "device" and row.how.endswith("measurement")
    assert row.bytes == 2 * GB + 2048 * 20_000_000


def test_without_a_measurement_the_update_is_marked_as_an_estimate():
    assert any(row.how.endswith("estimate") for row in plan(layout.ALL, machine=SERVER).memory if row.where == "device")


def test_a_probe_that_sees_no_growth_still_counts_the_samples():
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


def test_threads_and_precision_are_the_fastest_candidates():
    by_threads = {1: 1.0, 2: 0.7, 4: 0.69, 6: 3.0}
    wall = {("float32", n): 3 * s for n, s in by_threads.items()} | {("bf16", n): s for n, s in by_threads.items()}
    chosen = plan(layout.VISION_FREE, machine=replace(LAPTOP, cores=6, bf16=""), benchmark=benchmark(wall))
    assert (chosen.torch_threads, chosen.precision) == (2, "bf16"), "1 % is not worth two more threads"
    assert {chosen.settings[name].source for name in ("torch_threads", "precision")} == {"measurement"}
    assert chosen.settings["torch_threads"].note == (
        "update of 4096, float32 by threads 1: 3000 ms, 2: 2100 ms, 4: 2070 ms, 6: 9000 ms; "
        "bf16 by threads 1: 1000 ms, 2: 700 ms, 4: 690 ms, 6: 3000 ms"
    )


def test_on_a_busy_machine_threads_are_not_compared_and_precision_follows_processor_time():
    wall = {("float32", 1): 1.0, ("float32", 2): 3.0, ("bf16", 1): 1.2, ("bf16", 2): 2.0}
    processor = {("float32", 1): 0.9, ("float32", 2): 0.9, ("bf16", 1): 0.3, ("bf16", 2): 0.3}
    chosen = plan(layout.VISION_FREE, machine=LAPTOP, benchmark=benchmark(wall, processor, others=0.6))
    assert (chosen.torch_threads, chosen.precision) == (2, "bf16")
    assert chosen.settings["torch_threads"].note.startswith("not compared: other programs used 60%")


def test_bf16_needs_a_minimum_gain():
    times = {("float32", 1): 1.0, ("float32", 2): 0.5, ("bf16", 1): 0.9, ("bf16", 2): 0.48}
    chosen = plan(layout.VISION_FREE, machine=LAPTOP, benchmark=benchmark(times))
    assert (chosen.torch_threads, chosen.precision) == (2, "float32")


@pytest.mark.parametrize(
    ("plan_request", "expected"), [({"torch_threads": 1}, (1, "bf16")), ({"precision": "float32"}, (2, "float32"))]
)
def test_requested_values_are_not_timed(plan_request, expected):
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


def test_on_a_gpu_nothing_is_timed():
    chosen = plan(layout.ALL, machine=SERVER, benchmark=lambda size, candidates: 1 / 0)
    assert (chosen.device, chosen.precision, chosen.torch_threads) == ("cuda", "bf16", 1)


def test_precision_follows_the_hardware_where_nothing_is_timed():
    assert plan(layout.ALL, machine=replace(LAPTOP, bf16="")).precision == "float32"
    assert plan(layout.ALL, machine=replace(LAPTOP, bf16="AVX512-BF16")).precision == "bf16"
    assert plan(layout.ALL, machine=SERVER).precision == "bf16"
    assert plan(layout.ALL, machine=replace(SERVER, gpus=(V100,))).precision == "float32"


# --- the memory model ---


def test_host_memory_is_environments_times_decisions_times_bytes():
    chosen = plan(layout.ALL, PlanRequest(num_envs=128, rollout_length=64), machine=LAPTOP)
    buffer = next(row for row in chosen.memory if row.name == "rollout buffer")
    assert observation_bytes(layout.IMAGES) == 84 * 84 + 176 * 100
    assert buffer.bytes == 128 * 64 * (observation_bytes(layout.ALL) + TRANSITION_BYTES)


def test_on_gpus_neither_update_nor_rollout_counts_as_host_memory():
    two = replace(SERVER, gpus=(A100,) * 2)
    both = [
        plan(layout.ALL, PlanRequest(num_envs=512, rollout_length=64, processes=count), machine=two) for count in (1, 2)
    ]
    for made in both:
        where = {row.name: row.where for row in made.memory}
        assert (where["network update"], where["rollout buffer"], where["environments"]) == ("device", "device", "host")
    one, half = (next(row.bytes for row in made.memory if row.name == "rollout buffer") for made in both)
    assert one == 2 * half == 512 * 64 * (observation_bytes(layout.ALL) + TRANSITION_BYTES)


def test_a_small_gpu_holds_fewer_environments():
    small = replace(SERVER, gpus=(replace(A100, memory_bytes=2 * GB),))
    sizes = [plan(layout.ALL, machine=machine).num_envs for machine in (SERVER, small)]
    assert sizes[1] < sizes[0]


def test_the_estimate_is_larger_with_images():
    assert estimate_update(layout.ALL).bytes_per_sample > 5 * estimate_update(layout.VISION_FREE).bytes_per_sample


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
def test_profiles_on_the_machine_they_are_made_for(name, expected, observations):
    chosen = plan(observations, PlanRequest(profile=name), machine=PROFILES[name].machine())
    found = (chosen.num_envs, chosen.rollout_length, chosen.minibatch_size, chosen.learning_rate, chosen.precision)
    assert (*found, chosen.gpus) == expected
    for setting in ("num_envs", "rollout_length", "minibatch_size"):
        assert chosen.settings[setting].source == f"profile {name}"


def test_a_profile_of_several_gpus_takes_a_process_for_each():
    eight = replace(SERVER, gpus=(A100,) * 8)
    with pytest.raises(PlanError, match="--num-gpus 8"):
        plan(layout.ALL, PlanRequest(profile="8xA100-80GB"), machine=eight)
    assert plan(layout.ALL, PlanRequest(profile="8xA100-80GB"), machine=replace(eight, present=False)).gpus == 8
    chosen = plan(layout.ALL, PlanRequest(profile="8xA100-80GB", processes=8), machine=eight)
    own = chosen.of_each(8)
    assert (own.num_envs, own.rollout_length, own.minibatch_size) == (128, 64, 1024)
    assert own.learning_rate == chosen.learning_rate
    assert own.simulator_threads == SERVER.cores // 8


def test_processes_without_gpus_share_cores_memory_and_sizes():
    alone, three = (plan(layout.VISION_FREE, PlanRequest(processes=n, device="cpu"), machine=SERVER) for n in (None, 3))
    assert three.num_envs % 3 == three.minibatch_size % 3 == 0
    assert three.simulator_threads == three.torch_threads == SERVER.cores // 3
    assert three.host_bytes > alone.host_bytes
    with pytest.raises(PlanError, match="multiples of the 3 processes"):
        plan(layout.VISION_FREE, PlanRequest(processes=3, device="cpu", num_envs=64), machine=SERVER)
    with pytest.raises(PlanError, match="2 processes need one GPU each"):
        plan(layout.VISION_FREE, PlanRequest(processes=2, device="cuda"), machine=SERVER)


def test_auto_uses_one_of_several_gpus_and_warns():
    chosen = plan(layout.ALL, machine=replace(SERVER, gpus=(A100,) * 8))
    assert chosen.gpus == 1
    assert any("8 GPUs were found and 1 used: give --num-gpus 8" in warning for warning in chosen.warnings)


def test_a_gpu_profile_needs_its_gpu():
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
def test_errors_name_number_and_remedy(plan_request, message):
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
def test_unwise_plans_are_warned_about(plan_request, warning):
    chosen = plan(layout.ALL, PlanRequest(**plan_request), machine=LAPTOP)
    assert any(warning in text for text in chosen.warnings)


def test_a_plan_for_more_memory_than_is_free_is_warned_about():
    (warning,) = plan(layout.ALL, machine=replace(LAPTOP, available_bytes=GB)).warnings
    assert "only 1.00 GB are free now" in warning


# --- detection ---


def test_this_machine_is_detected():
    machine = detect()
    assert machine.cores >= 1
    assert 0 < machine.available_bytes <= machine.memory_bytes
    assert machine.cpu in machine.name
    assert machine.present


# --- the command line ---


def run(capsys, *arguments):
    status = main(["plan", *arguments])
    return status, capsys.readouterr()


def test_the_command_prints_a_table_with_sources(capsys):
    status, printed = run(
        capsys, "--architecture", "mlp_baseline", "--memory-gb", "16", "--cores", "4", "--num-envs", "96"
    )
    assert status == 0
    assert "described, 4 cores" in printed.out
    assert [line.split()[:6] for line in printed.out.splitlines() if line.startswith("| num_envs")] == [
        ["|", "num_envs", "|", "96", "|", "flag"]
    ]
    assert "12.80 GB" in printed.out


def test_the_command_prints_json(capsys):
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


def test_the_command_plans_for_a_profile_that_is_not_here(capsys):
    status, printed = run(capsys, "--architecture", "mlp_baseline", "--profile", "8xA100-80GB")
    assert status == 0
    assert "8 x A100-80GB" in printed.out


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
def test_mistakes_are_errors_of_one_line(capsys, arguments, message):
    status, printed = run(capsys, "--architecture", "mlp_baseline", *arguments)
    assert status == 2
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_without_a_name_every_architecture_has_a_row(capsys):
    status, printed = run(capsys, "--memory-gb", "4", "--gpus", "0", "--total-timesteps", "2e6")
    lines = printed.out.splitlines()
    rows = {cells[1]: cells for line in lines if line.startswith("| ") and (cells := line.split())[1] != "architecture"}
    stacked = [
        "full_hgt+visual4-state4",
        "full_hgt+visual4",
        "vision_free+state4",
    ]  # what other pipelines had names for
    assert status == 0 and list(rows) == [*ARCHITECTURES, *stacked]
    assert "2 M decisions" in printed.out and "stored figures, measured on " in printed.out
    assert all(rows[name][-3] != "unknown" for name in ARCHITECTURES), "there is a figure for each"


def test_networks_of_a_plugin_are_planned_for(capsys, monkeypatch, tmp_path):
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


def test_architectures_that_do_not_fit_have_a_row(capsys):
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
def test_stored_memory_is_what_an_update_takes(name, close):
    """Of what stands behind the + of a name, too: the same for every network."""
    from rl.ppo.update_benchmark import UpdateBenchmark

    network = get_architecture(name)
    stored = stored_figures(name, network.observations, network.stacking).update
    measured = measure_update(
        UpdateBenchmark(name, "cpu", "float32").peak_bytes, network.observations, network.stacking
    )
    assert stored.total(4096) == pytest.approx(measured.total(4096), rel=close)


@pytest.mark.parametrize(("name", "carried"), [("vision_free+gru", 256), ("vision_free+subtasks5", 50)])
def test_carried_bytes_count_as_stored(name, carried, one_thread):
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


def test_the_command_accepts_suffixes_of_architectures(capsys):
    names = ["vision_free", "vision_free+gru", "vision_free+subtasks50", "mlp_baseline+visual4", "vision_free+deep2"]
    status, printed = run(capsys, "--architectures", *names, "--memory-gb", "16", "--gpus", "0", "--json")
    rows = {one["architecture"]: one for one in json.loads(printed.out)["architectures"]}
    update = {name: next(row for row in one["memory"] if row["name"] == "network update") for name, one in rows.items()}
    assert status == 0 and update["vision_free+gru"]["how"].endswith(
        "figure of vision_free, plus stored figures of +gru"
    )
    assert "256 B carried" in rows["vision_free+gru"]["memory"][0]["how"]
    assert [name for name in names if rows[name]["speed"]] == ["vision_free", "vision_free+deep2"], "none was measured"


def test_encoded_graphs_count():
    plain, graphs = (
        plan(ARCHITECTURES[name].observations, machine=SERVER) for name in ("vision_free", "vision_free_gcn")
    )
    (row,) = (row for row in graphs.memory if row.name == "encoded graphs")
    assert row.where == "device" and row.bytes == 16_384 * CACHED_GRAPH_BYTES
    assert "encoded graphs" not in {row.name for row in plain.memory}


def test_measuring_a_network_that_does_not_fit_is_an_error():
    answer = measured("mlp_baseline", PlanRequest(num_envs=65_536, rollout_length=1024), detect())
    assert isinstance(answer.plan, PlanError) and answer.architecture == "mlp_baseline"


@pytest.mark.parametrize(("name", "bf16"), [("V100-32GB", False), ("T4", False), ("rtx-3090", True), ("H100", True)])
def test_fast_bf16_follows_the_compute_capability(name, bf16, capsys):
    assert known_gpu(name).bf16 == bf16
    status, printed = run(capsys, "--architecture", "mlp_baseline", "--gpu", name, "--memory-gb", "32", "--json")
    document = json.loads(printed.out)
    assert status == 0 and document["settings"]["precision"]["value"] == ("bf16" if bf16 else "float32")
    assert document["speed"] is None and document["minutes"] is None, "nothing was measured on a GPU"
    (update,) = (row for row in document["memory"] if row["name"] == "network update")
    assert update["how"].endswith("stored figure of a CPU, doubled")
    slow = plan(("game_state",), PlanRequest(precision="bf16"), machine=replace(SERVER, gpus=(known_gpu(name),)))
    assert any("has no fast bf16" in warning for warning in slow.warnings) == (not bf16)


def test_profiles_agree_with_the_list_of_gpus():
    for profile in PROFILES.values():
        assert all(gpu == known_gpu(gpu.name) for gpu in profile.gpus)


def test_a_plan_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from hardware.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "plan", "--architecture", "vision_free"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "| num_envs" in done.stdout
