#include "feeder.hpp"

#include "forks.hpp"

#include "calls.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace orderlane::detail {
namespace {

constexpr Nanos never = std::numeric_limits<Nanos>::max();

/// The proxy's own name for itself; nothing if it is not a valid address.
std::optional<Address> named_address(const Home& home) {
    try {
        return parse_address(home.address);
    } catch (const std::invalid_argument&) {
        return {};
    }
}

}  // namespace

Feeder::Feeder(FeederSite site, Proxies proxies)
    : site_(std::move(site)), proxies_(std::move(proxies)), random_(std::random_device()()) {}

void Feeder::start() { open_line(nullptr); }

void Feeder::turn() {
    for (const auto& line : lines_) turn(*line);
}

void Feeder::close() {
    std::list<std::unique_ptr<Line>> lines;
    {
        const Lock lock(site_.mutex);
        for (const auto& line : lines_) close(*line);
        lines.swap(lines_);  // closed lines do not open others
    }
    for (const auto& line : lines) {
        if (line->thread.joinable()) line->thread.join();
    }
}

// ---- lines --------------------------------------------------------------------------------------

void Feeder::open_line(HomePtr home) {
    auto made = std::unique_ptr<Line>(
        new Line{.home = std::move(home), .pulled_at = proxies_.next().address});
    auto& line = *lines_.emplace_back(std::move(made));
    try {
        line.thread = std::thread([this, &line] { run(line); });
    } catch (const std::system_error& error) {
        throw std::system_error(error.code(), "a thread could not be started");
    }
}

std::optional<Nanos> Feeder::due_at(const Line& line) const {
    return line.home ? site_.session.control_at(*line.home) : site_.session.pull_at();
}

bool Feeder::wait(Line& line, Lock& lock) {
    while (!line.closed) {
        const auto at = due_at(line);
        const Nanos now = now_ns();
        if (at && *at <= now) return true;
        line.planned_ns = at.value_or(never);
        if (at) {
            line.changed.wait_for(lock, std::chrono::nanoseconds(*at - now));
        } else {
            line.changed.wait(lock);
        }
        line.planned_ns = 0;
    }
    return false;
}

void Feeder::turn(Line& line) {
    if (line.planned_ns == 0) return;
    const auto at = due_at(line);
    if (at && *at < line.planned_ns) line.changed.notify_one();
}

void Feeder::abandon() noexcept {
    for (const auto& line : lines_) {
        orderlane::detail::abandon(line->connection);
        make_anew(line->thread);  // no such thread here: cannot be joined or detached
    }
    make_anew(lines_);  // their locks may be held
}

void Feeder::close(Line& line) {
    line.closed = true;
    line.interrupt.trip();
    line.changed.notify_one();
}

void Feeder::run(Line& line) noexcept {
    try {
        line.home ? control_forever(line) : pull_forever(line);
        line.connection.reset();
        if (!line.home && unstarted_ != nullptr) control_forever(*unstarted_);
    } catch (...) {  // a bug: report it to the application
        const Lock lock(site_.mutex);
        failure_ = std::current_exception();
        site_.changed();
    }
    line.connection.reset();
    line.ended = true;
}

// ---- pulling ------------------------------------------------------------------------------------

void Feeder::pull_forever(Line& line) {
    for (;;) {
        {
            Lock lock(site_.mutex);
            if (failure_ || !wait(line, lock)) return;
        }
        pull_once(line);
        const Lock lock(site_.mutex);
        if (line.closed) return;
        try {
            meet_homes();
        } catch (const std::system_error&) {  // this thread settles what that home has leased
            failure_ = std::current_exception();
            unstarted_ = lines_.back().get();
        }
        site_.changed();
    }
}

void Feeder::pull_once(Line& line) {
    try {
        if (!line.connection) {
            // Only this thread advances to the next one.
            line.connection.emplace(proxies_.next(), line.interrupt, proxies_.timeout_ns());
        }
        wire::PullRequest request;
        {
            const Lock lock(site_.mutex);
            if (site_.session.stopping()) return;  // during connecting
            request = site_.session.begin_pull(now_ns());
            turn();  // a waiting pull makes verdicts urgent
        }
        const Nanos timeout_ns = request.maxLingerTime * ms + proxies_.timeout_ns();
        const auto response = line.connection->call(PullCall{request}, timeout_ns);
        std::size_t pulled = 0;
        {
            const Lock lock(site_.mutex);
            pulled = site_.session.pull_answered(response, now_ns());
        }
        site_.log.tell(site_.hooks.pulled, pulled);
    } catch (const Error& error) {
        pull_failed(line, error);
    }
}

void Feeder::pull_failed(Line& line, const Error& error) {
    line.connection.reset();
    int failures = 0;
    {
        const Lock lock(site_.mutex);
        site_.session.pull_failed(now_ns(), jitter());
        failures = site_.session.pull_failures();
        if (tries_elsewhere(error, failures)) proxies_.go_on();
        if (line.closed) return;
        if (!error.retriable()) failure_ = std::current_exception();
    }
    site_.log.tell(site_.hooks.error, error);
    if (error.retriable() && is_news(failures)) {
        site_.log(LogLevel::warning, std::string("pull failed, retrying: ") + error.what());
    }
}

// ---- settling and extending ---------------------------------------------------------------------

/// Keeps one line for each proxy that the session names.
void Feeder::meet_homes() {
    const auto& homes = site_.session.homes();
    const auto is_wanted = [&](const HomePtr& home) {
        const auto found = homes.find(home->address);
        return found != homes.end() && found->second == home;
    };
    for (auto each = lines_.begin(); each != lines_.end();) {
        auto& line = **each;
        if (line.home && !line.closed && !is_wanted(line.home)) close(line);
        if (line.ended) {
            line.thread.join();
            each = lines_.erase(each);
        } else {
            ++each;
        }
    }
    for (const auto& [name, home] : homes) {
        const auto serves = [&](const auto& line) { return line->home == home; };
        if (std::find_if(lines_.begin(), lines_.end(), serves) == lines_.end()) open_line(home);
    }
}

void Feeder::control_forever(Line& line) {
    for (;;) {
        Control control;
        {
            Lock lock(site_.mutex);
            if (!wait(line, lock)) return;
            control = site_.session.begin_control(line.home, now_ns());
        }
        if (std::holds_alternative<std::monostate>(control)) continue;
        control_once(line, control);
        const Lock lock(site_.mutex);
        site_.changed();
    }
}

void Feeder::control_once(Line& line, const Control& control) {
    try {
        connect_home(line);
        const auto* settle = std::get_if<wire::AckRequest>(&control);
        const auto answer =
            settle != nullptr
                ? line.connection->call(SettleCall{*settle}, proxies_.timeout_ns())
                : line.connection->call(ExtendCall{std::get<wire::ExtendRequest>(control)},
                                        proxies_.timeout_ns());
        std::size_t settled = 0;
        std::vector<Message> lost;
        {
            const Lock lock(site_.mutex);
            if (line.home->settling) settled = line.home->settling->size();
            lost = site_.session.control_answered(line.home, answer);
        }
        if (settle != nullptr) {
            site_.log.tell(site_.hooks.settled, settled, answer.notHeld.size());
        }
        tell_lost(lost);
    } catch (const Error& error) {
        control_failed(line, error);
    }
}

void Feeder::control_failed(Line& line, const Error& error) {
    line.connection.reset();
    int failures = 0;
    std::vector<Message> lost;
    {
        const Lock lock(site_.mutex);
        lost = site_.session.control_failed(line.home, now_ns(), jitter());
        failures = line.home->failures;
        if (line.closed) return;
    }
    if (is_news(failures)) {
        site_.log(LogLevel::warning,
                  std::string("settle or extend failed, retrying: ") + error.what());
    }
    site_.log.tell(site_.hooks.error, error);
    tell_lost(lost);
}

/// Connects to the proxy that holds the leases, if not connected.
///
/// Its own name for itself may be unreachable, for example behind a forwarded port; then this uses
/// the address of the pull that returned the leases.
void Feeder::connect_home(Line& line) {
    if (line.connection && !line.connection->stale()) return;
    const auto connect = [&](const Address& to) {
        line.connection.emplace(proxies_.at(to), line.interrupt, proxies_.timeout_ns());
    };
    const auto own = named_address(*line.home).value_or(line.pulled_at);
    try {
        connect(own);
    } catch (const ConnectionLost&) {
        if (own == line.pulled_at) throw;
        connect(line.pulled_at);
    }
}

void Feeder::tell_lost(const std::vector<Message>& lost) const {
    for (const auto& message : lost) {
        site_.log.tell(site_.hooks.lease_lost, message);
        message.lease->request_stop();
    }
}

}  // namespace orderlane::detail
