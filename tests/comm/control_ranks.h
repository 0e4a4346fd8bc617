// Ranks as threads, each with its own session with one coordinator over loopback, for tests of comm/control.
#pragma once
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "comm/control/coordinator.h"
#include "comm/control/session.h"
#include "comm/failure_cases.h"

namespace lockstep::tests {

using control::Coordinator;
using control::Session;
using control::SessionOptions;

inline constexpr const char* kToken = "a token of the tests, no secret";
inline control::CoordinatorOptions with_token() { return {.token = kToken}; }

// What the body throws, in words; "" where it throws nothing.
inline std::string words_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Runs the body as so many threads at once; each one's error in words.
inline std::vector<std::string> words_of_each(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::string> words(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { words[static_cast<std::size_t>(rank)] = words_of([&] { body(rank); }); });
  threads.clear();  // joins
  return words;
}

inline SessionOptions place_of(const Coordinator& coordinator, int rank, int size, double deadline = 2) {
  return {.address = coordinator.address(),
          .port = coordinator.port(),
          .token = kToken,
          .rank = rank,
          .size = size,
          .deadline_seconds = deadline};
}

// A plain connection, as anybody can make one.
class Stranger {
 public:
  explicit Stranger(const Coordinator& coordinator) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(coordinator.port()));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = ::connect(socket_.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  void say(const std::string& bytes) const {
    EXPECT_EQ(::send(socket_.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // All that comes until the other end closes, or the time has passed.
  std::string hear(std::size_t most, double at_most_seconds) const {
    return control::read_exactly(socket_, most, control::Clock::now() + control::seconds(at_most_seconds));
  }
  bool connected() const { return connected_; }
  // The token's proof, as a rank gives it.
  void prove() const {
    const control::Token token(kToken);
    control::RankHandshake handshake(token);
    say(handshake.answer(hear(control::kGreetingBytes, 2)));
    handshake.check(hear(control::kVerdictBytes, 2));
  }

 private:
  control::Socket socket_;
  bool connected_ = false;
};

}  // namespace lockstep::tests
