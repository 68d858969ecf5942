"""PyTorch's number of threads, Python threads, fork."""

import os
import sys
import threading
import time
import unittest

from support import in_threads, main, unscale

import torch

import swamp_torch  # noqa: F401 has the operators


def threads_of_process():
    """Waits until the count does not change: a joined thread may still be ending."""
    count = -1
    while count != (now := len(os.listdir("/proc/self/task"))):
        count = now
        time.sleep(0.05)
    return count


def in_child(work):
    """Runs work() in a fork; returns whether it returned True within 30 s."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            import faulthandler
            faulthandler.dump_traceback_later(30, exit=True)
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def once(count=400000, dtype=torch.float32):
    """Unscales large tensors; returns whether the result is right."""
    tensors = [torch.full((count,), 8.0, dtype=dtype),
               torch.full((600, 700), 8.0, dtype=dtype)[:, ::2]]
    found = torch.zeros(())
    unscale(tensors, found, torch.tensor(0.25))
    return (found.item() == 0 and all(bool((t == 2).all()) for t in tensors)
            and torch.ops.swamp.any_nonfinite(tensors).item() == 0)


class CountOfThreads(unittest.TestCase):
    """Runs first, because of its name: the process must not have workers yet."""

    def test_1_one(self):
        torch.set_num_threads(1)
        before = threads_of_process()
        self.assertTrue(once())
        self.assertEqual(threads_of_process(), before)

    def test_2_one_in_a_new_thread(self):
        """An OpenMP thread that is new to PyTorch would use all CPUs."""
        torch.set_num_threads(1)
        seen = []
        # Made here, because any other operation would set the number of threads.
        tensor, inverse = torch.ones(400000), torch.tensor(0.5)
        found = torch.zeros(())

        def work():
            before = threads_of_process()
            unscale([tensor], found, inverse)
            seen.append(threads_of_process() - before)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(seen, [0])

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one CPU")
    def test_3_two(self):
        torch.set_num_threads(2)
        before = threads_of_process()
        tensor = torch.empty(400000)
        unscale([tensor], torch.zeros(()), torch.tensor(0.5))
        self.assertEqual(threads_of_process(), before + 1)


class PythonThreads(unittest.TestCase):
    def test_many_at_once(self):
        torch.set_num_threads(2)
        failures = []

        def work(number):
            dtype = (torch.float32, torch.bfloat16, torch.float16)[number % 3]
            for turn in range(20):
                if not once(1000 * (turn % 5) + 20000 * number, dtype):
                    failures.append((number, turn))

        in_threads(work, 6)
        self.assertEqual(failures, [])

    def test_the_interpreter_lock_is_released(self):
        """Another thread counts meanwhile. It gets the lock only if this thread
        releases it, since no switch is forced."""
        torch.set_num_threads(1)
        turns, done = [0], threading.Event()

        def count():
            while not done.is_set():
                turns[0] += 1
                time.sleep(0)

        arguments = ([torch.ones(1 << 22)], torch.zeros(()),
                     torch.tensor(1.0000001))
        interval = sys.getswitchinterval()
        counter = threading.Thread(target=count)
        counter.start()
        sys.setswitchinterval(100)
        try:
            before = turns[0]
            for _ in range(500):  # a busy machine may not run it at once
                unscale(*arguments)
                free = turns[0] != before
                if free:
                    break
        finally:
            sys.setswitchinterval(interval)
            done.set()
            counter.join()
        self.assertTrue(free)


class Fork(unittest.TestCase):
    def test_after_work_on_threads(self):
        torch.set_num_threads(2)
        self.assertTrue(once())
        # The strided part runs in PyTorch's own loop, whose pool hangs in a fork
        # unless the number of threads is set, as DataLoader does.
        self.assertTrue(in_child(lambda: torch.set_num_threads(1) or once()))

    def test_kernels_alone(self):
        torch.set_num_threads(2)
        self.assertTrue(once())
        tensor = torch.full((400000,), 8.0)

        def work():
            unscale([tensor], torch.zeros(()), torch.tensor(0.25))
            return tensor[0].item() == 2.0 and tensor[-1].item() == 2.0

        self.assertTrue(in_child(work))
        self.assertEqual(tensor[0].item(), 8.0)
        self.assertTrue(once())

    def test_with_threads_running(self):
        torch.set_num_threads(2)
        stop, good = threading.Event(), []

        def work():
            while not stop.is_set():
                good.append(once(30000))

        thread = threading.Thread(target=work)
        thread.start()
        children = [in_child(lambda: torch.set_num_threads(1) or once(30000))
                    for _ in range(5)]
        stop.set()
        thread.join()
        self.assertTrue(all(children) and all(good) and good)


if __name__ == "__main__":
    main()
