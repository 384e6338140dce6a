"""Bins of distance against numbers worked out by hand."""

import numpy as np

from ropewalk.evals.estimate import bins


def test_fine_bins_are_eighths_of_an_octave_and_begin_at_powers_of_two():
    distances = np.array([0, 1, 2, 4, 8, 1024, 11, 12])
    # 8 log2 11 = 27.7 and 8 log2 12 = 28.7; 0 counts as 1.
    np.testing.assert_array_equal(bins.fine_bin_number(distances), [0, 0, 8, 16, 24, 80, 27, 28])


def test_bins_are_half_octaves():
    starts = [1, 2, 2, 3, 4, 6, 8, 12, 16, 23, 32]
    assert [bins.bin_start(number) for number in range(11)] == starts
    assert bins.BIN_STARTS[:10].tolist() == [1, *starts[2:]]
    # Bins 1 and 2 both start at 2, which lies in bin 2: bin 1 holds no whole number of tokens.
    assert bins.bin_number(np.array(starts)).tolist() == [0, 2, 2, *range(3, 11)]
    assert bins.bin_number(np.array([5, 7, 11, 15, 22, 31])).tolist() == [4, 5, 6, 7, 8, 9]
