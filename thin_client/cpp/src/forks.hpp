// Handles clients that a child process inherits by fork().
//
// A fork copies sockets, locks and names, but no threads: two processes would then read one stream
// of answers, and a lock may remain held for ever. Owners of such objects have a ForkHandler.
#pragma once

#include <functional>
#include <memory>

namespace orderlane::detail {

/// Calls a function in each child process of fork(), before any other code runs there.
class ForkHandler {
public:
    explicit ForkHandler(std::function<void()> in_child);
    ForkHandler(const ForkHandler&) = delete;
    ForkHandler& operator=(const ForkHandler&) = delete;
    ~ForkHandler();
    void call() const { in_child_(); }

private:
    std::function<void()> in_child_;
};

/// Reconstructs an object in a child process without destroying its old value: its lock may be held
/// by a thread of the parent, or a change may have been interrupted.
template <class T, class... Arguments>
void make_anew(T& object, Arguments&&... arguments) {
    std::construct_at(&object, std::forward<Arguments>(arguments)...);
}

}  // namespace orderlane::detail
