"""Frozen networks, memory layouts, precisions and batches, on each device."""

# pytest collects what is imported here.
# ruff: noqa: F401

from __future__ import annotations

from tests.engine.test_batches import (
    stored,
    test_streamed_batches_are_those_from_memory,
    test_training_and_prediction_do_not_depend_on_where_images_are,
)
from tests.engine.test_frozen_network import (
    test_an_image_with_the_representation_that_is_asked_for_stays,
    test_attacks_and_inversions_agree_with_those_on_the_network,
    test_bfloat16_is_near_and_returns_float32,
    test_logits_representation_and_gradient_are_the_networks,
    test_oblong_grey_images_have_the_networks_numbers_and_gradients,
    test_refresh_follows_a_training_and_touches_nothing_else,
    test_refresh_follows_what_took_the_place_of_something_else,
)
from tests.engine.test_layout import test_gradients_through_an_average_over_the_border
from tests.engine.test_precision import test_float32_stays_float32_inside_another_autocast
from tests.training.test_loop import test_the_layout_changes_nothing
