#include "forks.hpp"

#include <mutex>
#include <pthread.h>
#include <set>
#include <utility>

namespace orderlane::detail {
namespace {

struct Registry {
    std::mutex mutex;
    std::set<const ForkHandler*> handlers;
};

/// Never destroyed: a client might outlive it.
Registry& registry() {
    static auto& made = *new Registry;
    return made;
}

void before() { registry().mutex.lock(); }
void in_parent() { registry().mutex.unlock(); }
void in_child() {
    registry().mutex.unlock();
    for (const auto* each : registry().handlers) each->call();
}

}  // namespace

ForkHandler::ForkHandler(std::function<void()> in_child_process)
    : in_child_(std::move(in_child_process)) {
    static const int failed = ::pthread_atfork(before, in_parent, in_child);
    static_cast<void>(failed);  // no memory: fork() would fail too
    const std::lock_guard lock(registry().mutex);
    registry().handlers.insert(this);
}

ForkHandler::~ForkHandler() {
    const std::lock_guard lock(registry().mutex);
    registry().handlers.erase(this);
}

}  // namespace orderlane::detail
