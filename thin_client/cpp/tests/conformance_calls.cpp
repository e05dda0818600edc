#include "conformance_lines.hpp"
namespace conformance {
int produce(const Json&) { return 2; }
int oneshot(const Json&) { return 2; }
}
