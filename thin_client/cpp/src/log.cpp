#include "log.hpp"

#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <typeinfo>

namespace orderlane::detail {
namespace {

std::string demangled(const char* name) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> text(
        abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
    return text ? text.get() : name;
}

}  // namespace

void Log::operator()(LogLevel level, const std::string& text) const noexcept {
    try {
        if (logger_) {
            logger_(level, text);
        } else if (level != LogLevel::info) {
            std::fprintf(stderr, "orderlane: %s\n", text.c_str());
        }
    } catch (...) {  // a failing logger cannot be reported
    }
}

void Log::hook_failed(const std::exception_ptr& error) const noexcept {
    try {
        (*this)(LogLevel::error, "a hook failed: " + describe(error));
    } catch (...) {
    }
}

std::string describe(const std::exception_ptr& error) {
    if (!error) return "an exception of another language";
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& known) {
        const char* text = known.what();
        return demangled(typeid(known).name()) + ": " + (text == nullptr ? "no text" : text);
    } catch (...) {
        const auto* type = abi::__cxa_current_exception_type();
        return type == nullptr ? "an exception" : demangled(type->name());
    }
}

}  // namespace orderlane::detail
