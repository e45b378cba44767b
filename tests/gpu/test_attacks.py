"""Attacks and their evaluation, on each device."""

# pytest collects what is imported here.
# ruff: noqa: F401

from __future__ import annotations

from tests.attacks.evaluating.test_evaluating import (
    test_a_step_asks_the_device_no_more_than_it_must,
    test_agrees_with_attacking_every_image_at_every_radius,
    test_autoattack_takes_more_than_pgd,
    test_batches_are_refilled_as_images_leave,
    test_cw_compares_distances,
    test_diagnostics_look_once_at_each_image_at_each_radius,
    test_nothing_is_left_to_attack,
    test_radius_0_is_clean_and_labels_are_shifted,
    test_random_starts_are_drawn_again_the_same,
)
from tests.attacks.test_carlini_wagner import (
    test_comes_near_the_closed_form_on_a_linear_model,
    test_finds_what_foolbox_finds,
)
from tests.attacks.test_gradients import test_each_gradient_has_the_direction_of_the_cross_entropys_at_its_image_alone
from tests.attacks.test_inversion import (
    test_an_image_that_has_the_representation_does_not_move,
    test_recovers_the_image_where_the_representation_is_invertible,
    test_the_distance_falls_in_the_mean,
)
from tests.attacks.test_pgd import (
    test_equals_foolbox,
    test_is_the_same_for_any_batch_size,
    test_leaves_the_model_as_it_was,
    test_progress_receives_every_step_and_changes_nothing,
    test_random_starts_fill_the_ball_evenly,
    test_reaches_the_closed_form_on_a_linear_model,
)
from tests.attacks.test_representation_pgd import (
    test_another_network_is_approached_inside_ball_and_pixel_range,
    test_the_nearest_point_of_a_ball,
    test_the_nearest_point_of_a_cube,
)
