// The conformance program: wraps the client so that the cases can drive it. It decides nothing.
// tests/conformance/clients/README.md specifies it.
#include "conformance_lines.hpp"

#include <cstdio>

int main(int count, char** arguments) {
    if (count != 2) {
        std::fprintf(stderr, "usage: conformance OPTIONS, a JSON object\n");
        return 2;
    }
    try {
        const auto options = conformance::Json::parse(arguments[1]);
        const auto mode = options.value("mode", "consume");
        if (mode == "produce") return conformance::produce(options);
        if (mode == "oneshot") return conformance::oneshot(options);
        return conformance::consume(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "conformance: %s\n", error.what());
        return 2;
    }
}
