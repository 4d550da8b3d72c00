"""The main job: for each architecture, condition and seed, imitation -> PPO -> evaluation -> films, then one report.

    run(resolve(argv))        # writes <output>/<name>_<time>/, prints the table, returns the folder

Layout of the folder: ``docs/file_formats.md``.  Everything that can be checked is checked before anything is trained.
"""

from datetime import datetime
from pathlib import Path

import hardware
from nppsim.report.pages import check_packages
from rl.config import ExperimentConfig
from rl.experiment.data import Log, audit_rewards, load_data
from rl.experiment.job import make_jobs, train_one
from rl.experiment.log_file import LogFile
from rl.experiment.record import ExperimentRecord, circumstances, summary, versions, write
from rl.upload import Uploader


def run(config: ExperimentConfig, log: Log = print) -> Path:
    """Run an experiment; returns its folder.  What is told goes to ``log`` and into its log.txt.

    Raises the named errors of the package for bad input, before training; KeyboardInterrupt passes through once a
    checkpoint has been written.
    """
    with LogFile(log) as kept:
        return _run(config, kept)


def _run(config: ExperimentConfig, log: LogFile) -> Path:
    check_packages()
    machine = hardware.detect()
    data = load_data(config, log)
    audit = audit_rewards(config, data, log)
    now = datetime.now()
    folder = config.resume_from or config.output_dir / f"{config.experiment_name}_{now:%Y%m%d_%H%M%S}"
    uploader = Uploader(config.upload, folder.name) if config.upload.bucket else None
    record = ExperimentRecord(
        config, now, machine.name, versions(), data.fingerprints, audit, circumstances=circumstances()
    )
    write(record, folder)
    log.open(folder)
    log(f"experiment folder: {folder}")
    for job in make_jobs(config, data, machine, folder, uploader, log):
        record = record.with_run(train_one(job))
        write(record, folder)
    if uploader:
        uploader.sync(folder)
    log(summary(record, folder))
    return folder
