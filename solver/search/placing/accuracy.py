"""When a second way of parallelism beats more data parallelism: time to accuracy, where larger batches need more epochs."""


def hybrid_gain(speed_up: float, ways: int, efficiency: tuple[float, float], epochs: tuple[float, float]) -> float:
    """Time to accuracy of M N-way data parallelism over that of N-way data parallelism of M-way model-parallel workers; above one, the hybrid wins.

    `speed_up`: SU_M, of one worker on `ways` = M devices. `efficiency`: (SE_N, SE_MN), scaling efficiency of data parallelism over N and over M N.
    `epochs`: (E_N, E_MN), needed at the batch sizes of N and of M N workers. Time is epochs over throughput, E_MN / (M N SE_MN) against
    E_N / (N SU_M SE_N), hence SU_M SE_N E_MN / (M SE_MN E_N): the hybrid iff SU_M > M (SE_MN / SE_N) (E_N / E_MN).

    Source: Pal et al. 2019 (arXiv 1907.13257), section 3. Test vector: SU_2 = 1.22 at equal efficiencies: 0.61 with epochs (1, 1), 1.22 with (1, 2).
    """
    (few, many), (small, large) = efficiency, epochs
    return speed_up * few * large / (ways * many * small)
