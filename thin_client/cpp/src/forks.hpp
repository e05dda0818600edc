// What a child process does with the clients that it inherited by fork().
//
// A fork copies sockets, locks and names, but no threads: two processes then read one stream of
// answers, and a lock may be held by nobody. What holds such things has a ForkHandler.
#pragma once

#include <functional>
#include <memory>

namespace orderlane::detail {

/// Calls a function in each child process that fork() makes, before any other code runs there.
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

/// Makes the object anew and leaves what it held, in a child process: its lock may be held by a
/// thread that is not there, or one may have been in the middle of changing it.
template <class T, class... Arguments>
void make_anew(T& object, Arguments&&... arguments) {
    std::construct_at(&object, std::forward<Arguments>(arguments)...);
}

}  // namespace orderlane::detail
