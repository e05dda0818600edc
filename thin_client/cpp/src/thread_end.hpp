// The end of a thread by pthread_exit or cancellation, which `catch (...)` catches as well.
#pragma once

#include <cxxabi.h>

namespace orderlane::detail {

/// To be rethrown always.
using ThreadEnd = abi::__forced_unwind;

}  // namespace orderlane::detail

/// For functions that catch a ThreadEnd: there is no object to which the reference could refer.
#define ORDERLANE_CATCHES_THREAD_END __attribute__((no_sanitize("undefined")))
