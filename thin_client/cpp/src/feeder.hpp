// Keeps a `Session` supplied. One thread pulls; another for each proxy that holds leases settles
// and extends on its own connection, because a waiting pull occupies the first one.
#pragma once

#include "connection.hpp"
#include "log.hpp"
#include "proxies.hpp"
#include "session.hpp"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace orderlane::detail {

/// Shared data of a feeder, guarded by the mutex, including the session.
struct FeederSite {
    std::mutex& mutex;
    Session& session;
    const Hooks& hooks;
    const Log& log;
    /// Called with the mutex held, after each answer or failure.
    std::function<void()> changed;
};

/// The connections of one consumer.
class Feeder {
public:
    Feeder(FeederSite site, Proxies proxies);
    ~Feeder() { close(); }

    /// Starts to pull. The caller holds the mutex.
    void start();
    /// Wakes lines whose work has become due. The caller holds the mutex.
    void turn();
    /// The failure that ended it; null while running. The caller holds the mutex.
    [[nodiscard]] std::exception_ptr failure() const noexcept { return failure_; }
    /// Ends all threads and connections; requests in flight are cancelled. The caller does not hold
    /// the mutex.
    void close();
    /// In a child process: releases the parent's connections and threads.
    void abandon() noexcept;

private:
    /// A thread's connection and wake-up.
    struct Line {
        HomePtr home;       // null: the line of pulls
        Address pulled_at;  // address of the pulls that named it
        Interrupt interrupt = {};
        std::optional<Connection> connection = {};
        bool closed = false;
        Nanos planned_ns = 0;  // 0: the thread is awake
        std::condition_variable changed = {};
        std::atomic<bool> ended = false;
        std::thread thread = {};
    };
    using Lock = std::unique_lock<std::mutex>;

    [[nodiscard]] std::optional<Nanos> due_at(const Line& line) const;
    /// True when work is due, false when the line is closed.
    bool wait(Line& line, Lock& lock);
    void turn(Line& line);
    static void close(Line& line);

    void open_line(HomePtr home);
    void run(Line& line) noexcept;
    void pull_forever(Line& line);
    void pull_once(Line& line);
    void pull_failed(Line& line, const Error& error);
    void meet_homes();
    void control_forever(Line& line);
    void control_once(Line& line, const Control& control);
    void control_failed(Line& line, const Error& error);
    void connect_home(Line& line);
    void tell_lost(const std::vector<Message>& lost) const;
    [[nodiscard]] double jitter() { return std::uniform_real_distribution<>(0, 1)(random_); }

    FeederSite site_;
    Proxies proxies_;
    std::exception_ptr failure_;
    std::minstd_rand random_;
    std::list<std::unique_ptr<Line>> lines_;
    Line* unstarted_ = nullptr;  // a home's line, whose thread could not start
};

}  // namespace orderlane::detail
