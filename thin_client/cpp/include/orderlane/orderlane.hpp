// All headers: consumer, producer, puller, signals.
#pragma once

#include <orderlane/consumer.hpp>
#include <orderlane/producer.hpp>
#include <orderlane/puller.hpp>
#include <orderlane/signals.hpp>
