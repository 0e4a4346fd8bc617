// Connections between parameter servers and workers that may be gone at any time (comm/apart).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "comm/apart/worker_links.h"

namespace lockstep::tests {
namespace {

using apart::Link;
using ::testing::HasSubstr;

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    a = std::make_unique<Link>(control::Socket(ends[0]), "worker 1", false);
    raw = ends[1];
  }
  std::unique_ptr<Link> other() { return std::make_unique<Link>(control::Socket(raw), "server", false); }
  std::unique_ptr<Link> a;
  int raw;
};

std::vector<char> pattern(std::size_t bytes, int seed) {
  std::vector<char> all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<char>(i * 31 + static_cast<std::size_t>(seed));
  return all;
}

// More than a socket takes at once, and nothing, in the order of the calls; both ways at the same time.
TEST(ApartLink, CarriesMessagesOfAnySizeInOrder) {
  Pair pair;
  const std::unique_ptr<Link> b = pair.other();
  const std::vector<std::size_t> sizes{1, 0, 3'000'001, 7, 65536, 0};
  std::vector<std::vector<char>> sent, got_a, got_b;
  std::vector<Link::Started> all_a, all_b;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sent.push_back(pattern(sizes[i], static_cast<int>(i)));
    got_a.emplace_back(sizes[i]);
    got_b.emplace_back(sizes[i]);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    all_a.push_back(pair.a->send(sent[i].data(), std::ssize(sent[i])));
    all_a.push_back(pair.a->receive(got_a[i].data(), std::ssize(got_a[i])));
    all_b.push_back(b->send(sent[i].data(), std::ssize(sent[i])));
    all_b.push_back(b->receive(got_b[i].data(), std::ssize(got_b[i])));
  }
  std::thread other([&] {
    for (const auto& one : all_b) b->wait(one, 10);
  });
  for (const auto& one : all_a) pair.a->wait(one, 10);
  other.join();
  EXPECT_FALSE(pair.a->broken()) << pair.a->why();
  EXPECT_EQ(got_a, sent);
  EXPECT_EQ(got_b, sent);
}

// What came before the end counts, and half a message does not.
TEST(ApartLink, BreaksInTheMiddleOfAMessage) {
  Pair pair;
  const std::uint64_t lengths[2] = {4, 100};
  ASSERT_EQ(::write(pair.raw, &lengths[0], 8), 8);
  ASSERT_EQ(::write(pair.raw, "abcd", 4), 4);
  ASSERT_EQ(::write(pair.raw, &lengths[1], 8), 8);
  ASSERT_EQ(::write(pair.raw, "abcd", 4), 4);
  ::close(pair.raw);
  char first[4] = {}, second[100] = {};
  const auto whole = pair.a->receive(first, 4), half = pair.a->receive(second, 100);
  pair.a->wait(half, 10);
  EXPECT_TRUE(whole->whole);
  EXPECT_TRUE(half->done);
  EXPECT_FALSE(half->whole);
  EXPECT_EQ(pair.a->why(), "worker 1 has closed its connection");
  EXPECT_TRUE(pair.a->receive(first, 4)->done) << "and so is all that follows";
}

TEST(ApartLink, SeesAnEndWhereNothingIsExpected) {
  Pair pair;
  pair.a->advance();
  EXPECT_FALSE(pair.a->broken());
  ::close(pair.raw);
  pair.a->advance();
  EXPECT_TRUE(pair.a->broken());
}

TEST(ApartLink, BreaksWhereAnotherLengthComesOrNothing) {
  Pair pair;
  const std::unique_ptr<Link> b = pair.other();
  const double number = 1;
  double numbers[2];
  b->send(&number, 8);
  pair.a->wait(pair.a->receive(numbers, 16), 10);
  EXPECT_EQ(pair.a->why(), "worker 1 sends 8 bytes where 16 are expected");
  Pair silent;
  const auto began = control::Clock::now();
  silent.a->wait(silent.a->receive(numbers, 16), 0.3);
  EXPECT_THAT(silent.a->why(), HasSubstr("has neither sent nor taken anything"));
  EXPECT_LT(control::seconds_since(began), 5);
  ::close(silent.raw);
}

// Of two workers of one rank each, one server.
class ApartDoor : public ::testing::Test {
 protected:
  apart::ServerLinks::Options options(const std::string& settings, std::uint64_t life) const {
    return {.mesh = mesh_,
            .rank = 1,
            .keys = keys_,
            .addresses = {{.rank = 2, .address = "127.0.0.1", .port = port_}},
            .settings = settings,
            .life = life};
  }
  // A joiner, looked for while the worker tries to come in.
  std::vector<apart::WorkerLinks::Joiner> look(const std::function<void()>& come) {
    std::vector<apart::WorkerLinks::Joiner> found;
    std::atomic<bool> done = false;
    std::jthread worker([&] {
      come();
      done = true;
    });
    const auto until = control::Clock::now() + control::seconds(10);
    while (!done && control::Clock::now() < until) {
      for (const auto& one : links_.joiners()) found.push_back(one);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const auto& one : links_.joiners()) found.push_back(one);
    return found;
  }

  const apart::ApartMesh mesh_{.workers = 2, .line = 1, .servers = 1};
  const tcp::WorldKeys keys_ = tcp::WorldKeys::make();
  std::unique_ptr<apart::Acceptor> acceptor_ = std::make_unique<apart::Acceptor>("127.0.0.1", keys_, 2, "as told");
  const int port_ = acceptor_->port();
  apart::WorkerLinks links_{mesh_, 2, std::move(acceptor_), 5};
};

TEST_F(ApartDoor, LetsAWorkerInThatHasTheSameSettings) {
  std::unique_ptr<apart::ServerLinks> worker;
  const auto joiners = look([&] {
    worker = std::make_unique<apart::ServerLinks>(options("as told", 7));
    worker->join();
  });
  ASSERT_EQ(joiners.size(), 1u);
  EXPECT_EQ(joiners[0].worker, 1);
  EXPECT_EQ(joiners[0].life, 7u);
  EXPECT_FALSE(links_.is_there(1));
  EXPECT_TRUE(links_.take_in(joiners[0], 1));
  EXPECT_TRUE(links_.is_there(1));
  EXPECT_FALSE(links_.is_lost(1));
  worker.reset();
  EXPECT_TRUE(links_.is_lost(1));
  EXPECT_EQ(links_.why_lost(1), "worker 1 has closed its connection");
  links_.let_go(1);
  EXPECT_FALSE(links_.is_there(1));
}

TEST_F(ApartDoor, RefusesOtherSettingsAndStrangers) {
  EXPECT_TRUE(
      look([&] { EXPECT_THROW(apart::ServerLinks(options("of another run file", 8)).join(), UserError); }).empty());
  EXPECT_TRUE(look([&] {
                auto stranger = options("as told", 9);
                stranger.keys = tcp::WorldKeys::make();
                EXPECT_THROW(apart::ServerLinks(stranger).join(), CommError);
              }).empty());
}

// One whose other connection never came is not there, and costs its time alone.
TEST_F(ApartDoor, TakesNobodyInByHalves) {
  const auto now = control::Clock::now();
  EXPECT_FALSE(links_.take_in({.worker = 0, .life = 5}, 0.1));
  EXPECT_LT(control::seconds_since(now), 5);
  EXPECT_FALSE(links_.is_there(0));
}

}  // namespace
}  // namespace lockstep::tests
