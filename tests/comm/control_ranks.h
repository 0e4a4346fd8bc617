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

inline std::string with_flipped(std::string bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  return bytes;
}

// A plain connection, as anybody can make one; from another address of loopback, where that is given.
class Stranger {
 public:
  explicit Stranger(const Coordinator& coordinator, const char* from = nullptr)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto address_of = [](const char* text, int port) {
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(port));
      ::inet_pton(AF_INET, text, &address.sin_addr);
      return address;
    };
    if (from) {
      const sockaddr_in mine = address_of(from, 0);
      EXPECT_EQ(::bind(socket_.descriptor(), reinterpret_cast<const sockaddr*>(&mine), sizeof mine), 0);
    }
    const sockaddr_in there = address_of("127.0.0.1", coordinator.port());
    connected_ = ::connect(socket_.descriptor(), reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0;
  }
  void say(const std::string& bytes) const {
    EXPECT_EQ(::send(socket_.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Where the other end may have closed already.
  bool try_to_say(const std::string& bytes) const {
    return ::send(socket_.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // All that comes until the other end closes, or the time has passed.
  std::string hear(std::size_t most, double at_most_seconds) const {
    return control::read_exactly(socket_, most, control::Clock::now() + control::seconds(at_most_seconds));
  }
  bool connected() const { return connected_; }
  // The token's proof, as a rank gives it; frames can be sealed from then on.
  void prove() {
    const control::Token token(kToken);
    control::RankHandshake handshake(token);
    say(handshake.answer(hear(control::kGreetingBytes, 2)));
    sealer_.emplace(handshake.keys(hear(control::kVerdictBytes, 2)).sending);
  }
  std::string sealed(const control::Frame& frame) {
    std::string bytes;
    sealer_->append(frame, bytes);
    return bytes;
  }
  void say(const control::Frame& frame) { say(sealed(frame)); }

 private:
  control::Socket socket_;
  std::optional<control::FrameSealer> sealer_;
  bool connected_ = false;
};

}  // namespace lockstep::tests
