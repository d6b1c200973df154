"""Runs an evaluation plan in one process or a few; episodes that have a file are not run again."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from typing import Any, Protocol

from tqdm import tqdm

from heisd_ros.offline.episode_runner import EpisodeRunner
from heisd_ros.offline.evaluation_plan import Plan, claim_folder
from heisd_ros.offline.records import EpisodeKey

POLL_S = 1.0
"""How often the progress bar looks at what the worker processes have done, seconds."""


class _Queue(Protocol):
    """The part of `queue.Queue` that a manager's queue has, too."""

    def put(self, item: Any) -> None: ...  # noqa: ANN401

    def get_nowait(self) -> Any: ...  # noqa: ANN401


def run_evaluation(plan: Plan, facts: Mapping[str, Any]) -> int:
    """Run every episode that has no file yet; return how many were run.

    Args:
        plan: What to run.
        facts: Provenance, kept in the run's `run.json`.

    Raises:
        ConfigError: If the folder holds a run with other settings, or the plan is impossible.
        HeisdError: If the model, a store or the simulator cannot be loaded. An exception within
            an episode ends only that episode, as a crash.
    """
    plan.check()
    claim_folder(plan, facts)
    chunks = plan.pending()
    total, missing = len(plan.episodes()), sum(map(len, chunks))
    results = _in_processes(plan, chunks) if plan.processes > 1 else _here(plan, chunks)
    with tqdm(total=total, initial=total - missing, unit="episode") as bar:
        for key in results:
            bar.set_postfix_str(f"task {key.task} init {key.init} {key.method}")
            bar.update()
    return missing


def _here(plan: Plan, chunks: list[list[EpisodeKey]]) -> Iterator[EpisodeKey]:
    runner = EpisodeRunner.of_libero(plan)
    try:
        for chunk in chunks:
            for key in chunk:
                runner.run(key)
                yield key
    finally:
        runner.close()


def _in_processes(plan: Plan, chunks: list[list[EpisodeKey]]) -> Iterator[EpisodeKey]:
    # The workers inherit it before their numpy and torch start threads.
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(plan.processes, context) as pool:
        todo, done = manager.Queue(), manager.Queue()
        for chunk in chunks:
            todo.put(chunk)
        workers: list[Future[None]] = [
            pool.submit(_work, plan, todo, done) for _ in range(plan.processes)
        ]
        running = True
        while running:
            ended, still = wait(workers, timeout=POLL_S, return_when=FIRST_EXCEPTION)
            yield from _drain(done)
            if any(worker.exception() for worker in ended):
                list(_drain(todo))  # the other workers stop after their present episode
            running = bool(still)
        yield from _drain(done)
        for worker in workers:
            worker.result()


def _work(plan: Plan, todo: _Queue, done: _Queue) -> None:
    """Run chunks until there are none; the body of a worker process."""
    runner = EpisodeRunner.of_libero(plan)
    try:
        for chunk in _drain(todo):
            for key in chunk:
                runner.run(key)
                done.put(key)
    finally:
        runner.close()


def _drain(source: _Queue) -> Iterator[Any]:
    """Yield what is in a queue until it is empty."""
    with contextlib.suppress(queue.Empty):
        while True:
            yield source.get_nowait()
