"""Trainings, their attack, their probes and their resumption, on each device."""

# pytest collects what is imported here.
# ruff: noqa: F401

from __future__ import annotations

from tests.training.test_adversary import (
    test_a_share_of_each_batch_stays_natural,
    test_random_starts_do_not_move_when_a_training_goes_on,
    test_random_starts_fill_the_ball_and_follow_from_the_seed,
)
from tests.training.test_loop import (
    test_a_damaged_checkpoint_is_a_fresh_start,
    test_a_diverging_training_stops,
    test_a_request_to_end_is_heard_when_the_checkpoint_is_saved,
    test_a_training_stopped_at_any_step_goes_on_bit_for_bit,
    test_adversarial_training_raises_robust_accuracy,
    test_no_gradient_takes_memory_between_two_steps,
)
from tests.training.test_optimiser import test_optimisers_are_torchs
from tests.training.test_probes import (
    data,
    other,
    probed,
    simple,
    test_no_draw_of_the_training_moves,
    test_weights_are_the_same_to_the_bit,
)
