// The conformance program's output: lines of JSON, and the history.
#pragma once

#include <orderlane/orderlane.hpp>

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace conformance {

using Json = nlohmann::json;

/// Writes a line to standard output, at once. Thread-safe.
void say(const Json& line);

[[nodiscard]] Json message_line(const orderlane::Message& message, const char* event);
[[nodiscard]] Json error_line(const orderlane::Error& error);

/// Sets options of all modes; absent ones keep the client's defaults.
[[nodiscard]] orderlane::Servers servers(const Json& options);
[[nodiscard]] std::optional<orderlane::Tls> tls(const Json& options);
[[nodiscard]] std::chrono::milliseconds time(const Json& options, const char* name,
                                             std::chrono::milliseconds otherwise);

/// Appends events in the format of docs/history.md; does nothing without a file.
class History {
public:
    explicit History(const Json& options);
    ~History();
    void handle_start(const orderlane::Message& message);
    void handle_end(const orderlane::Message& message, const char* outcome);

private:
    void handling(const char* event, const orderlane::Message& message, const char* outcome);
    void write(Json event);

    std::mutex mutex_;
    std::ofstream file_;
    std::string node_, group_, consumer_;
    std::int64_t clock_offset_ns_ = 0;
};

// The modes; each returns the exit code.
int consume(const Json& options);
int produce(const Json& options);
int oneshot(const Json& options);

}  // namespace conformance
