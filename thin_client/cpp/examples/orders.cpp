// Sends orders, then handles them: in order by customer, customers in parallel.
//
//     orders 127.0.0.1:9713            until Ctrl-C
#include <orderlane/orderlane.hpp>

#include <chrono>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

using namespace std::chrono_literals;
using orderlane::Message;
using orderlane::Outcome;

namespace {

void send_orders(const std::string& servers) {
    orderlane::Producer producer{{.servers = servers}};
    std::vector<orderlane::Outgoing> orders;
    for (int number = 0; number < 100; ++number) {
        const auto customer = "customer-" + std::to_string(number % 10);
        orders.push_back({.topic = "orders",
                          .body = R"({"customer": ")" + customer + R"("})",
                          .key = customer});
    }
    producer.send_batch(orders);
}

void print(const std::string& line) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    std::cout << line << std::endl;
}

Outcome bill(const Message& message) {
    if (message.body.find("customer") == std::string::npos) {
        return Outcome::reject("no customer");  // no retry will help
    }
    if (message.attempt == 1 && message.offset % 10 == 0) {
        return Outcome::retry_after(500ms);  // only this customer waits
    }
    std::this_thread::sleep_for(10ms);  // stands for real work
    std::ostringstream line;
    line << message.key.value_or("-") << " offset " << message.offset << " attempt " << message.attempt;
    print(line.str());
    return Outcome::ok();
}

}  // namespace

int main(int count, char** arguments) {
    const std::string servers = count > 1 ? arguments[1] : "127.0.0.1:9713";
    try {
        send_orders(servers);
        orderlane::ConsumerOptions options{.servers = servers, .group = "billing"};
        options.topics = {"orders"};
        options.concurrency = 10;
        options.hooks.lease_lost = [](const Message& message) {
            print("lost: " + message.describe());
        };
        orderlane::Consumer consumer(options);
        const orderlane::StopOnSignals signals(consumer);
        consumer.run(bill);
    } catch (const std::exception& error) {
        std::cerr << "orders: " << error.what() << '\n';
        return 1;
    }
}
