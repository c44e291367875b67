"""Workers that fill the device, each from the other side of a barrier, so that all hold what they got at the same time.

workers.py fork|spawn|forkserver|threads COUNT STEP
"""

import multiprocessing
import sys
import threading

from cuda import Driver, say


def fill(barrier, step):
    cuda = Driver()
    code = cuda.start()
    total = cuda.info()[2]
    barrier.wait(60)
    filled = cuda.fill(step)
    barrier.wait(60)
    say("worker", code, total, *filled, *cuda.info())
    barrier.wait(60)


if __name__ == "__main__":
    how, count, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if how == "threads":
        barrier = threading.Barrier(count)
        workers = [threading.Thread(target=fill, args=(barrier, step)) for _ in range(count)]
    else:
        context = multiprocessing.get_context(how)
        barrier = context.Barrier(count)
        workers = [context.Process(target=fill, args=(barrier, step)) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert how == "threads" or all(worker.exitcode == 0 for worker in workers), [worker.exitcode for worker in workers]
