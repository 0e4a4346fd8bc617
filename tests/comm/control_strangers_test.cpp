// Who does not know the token costs little, keeps no rank out, and is not noticed by ranks at work.
#include <sys/resource.h>

#include "comm/control_ranks.h"

namespace lockstep::tests {
namespace {

using namespace lockstep::control;
using ::testing::Each;
using ::testing::HasSubstr;

// So many connections need as many descriptors, at both ends.
void allow_descriptors(rlim_t count) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, count));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(ControlStrangers, NothingOfThemIsParsedBeforeTheToken) {
  Coordinator coordinator(with_token());
  Stranger stranger(coordinator);
  const std::string join = Join{0, 1, 1, std::string(100, 'h'), 1}.encode();
  ASSERT_GT(join.size(), kAnswerBytes);
  stranger.say(join);
  const std::string heard = stranger.hear(kGreetingBytes + kVerdictBytes + 1000, 3);
  EXPECT_EQ(heard.size(), kGreetingBytes + kVerdictBytes);  // no refusal in words, no welcome
  EXPECT_EQ(heard.substr(kGreetingBytes), refusal());
}

TEST(ControlStrangers, OneThatSaysNothingIsDropped) {
  Coordinator coordinator(with_token());
  Stranger stranger(coordinator);
  const double took = seconds_of([&] { EXPECT_EQ(stranger.hear(1000, 5).size(), kGreetingBytes); });
  EXPECT_GT(took, 1);
  EXPECT_LT(took, 4);
}

// Slowly as it may, a byte now and then: the time counts from the beginning.
TEST(ControlStrangers, OneThatSpeaksSlowlyIsDroppedNoLater) {
  Coordinator coordinator(with_token());
  Stranger before(coordinator), after(coordinator);
  after.prove();  // as slow with the token, before it has said who it is
  const std::string join = after.sealed({FrameType::join, 1, Join{0, 1, 1, "h", 1}.encode()});
  const double took = seconds_of([&] {
    for (std::size_t i = 0; i < 60; ++i) {
      const bool one = before.try_to_say("x"), other = i >= join.size() || after.try_to_say(join.substr(i, 1));
      if (!one && !other) break;
      nap(0.1);
    }
  });
  EXPECT_LT(took, 4.5);
  EXPECT_EQ(after.hear(1000, 1), "");
  Session session(place_of(coordinator, 0, 1));
  session.leave();
}

TEST(ControlStrangers, OneWithTheTokenThatSpeaksNonsenseIsGivenUp) {
  Coordinator coordinator(with_token());
  Stranger stranger(coordinator);
  stranger.prove();
  stranger.say(Frame{FrameType::join, 1, "no join at all"});
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(stranger.hear(1000, 5), ""); }), 1);
  Stranger other(coordinator);
  other.prove();
  other.say(Frame{FrameType::heartbeat, 1, ""});  // before it has said who it is
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(other.hear(1000, 5), ""); }), 1);
  Session session(place_of(coordinator, 0, 1));
  session.leave();
}

TEST(ControlStrangers, ManyOfThemDoNotKeepTheRanksOut) {
  allow_descriptors(4096);
  Coordinator coordinator(with_token());
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 600; ++i) {
    crowd.push_back(std::make_unique<Stranger>(coordinator));
    ASSERT_TRUE(crowd.back()->connected()) << i;
  }
  const double took = seconds_of([&] {
    EXPECT_THAT(words_of_each(8,
                              [&](int rank) {
                                Session session(place_of(coordinator, rank, 8));
                                session.leave();
                              }),
                Each(""));
  });
  EXPECT_LT(took, 1);
  // The oldest have made room before their silence would have ended them.
  EXPECT_LT(seconds_of([&] { crowd.front()->hear(1000, 5); }), 1);
}

// A crowd at one address does not close the connection of another, however slowly that one answers.
TEST(ControlStrangers, ACrowdAtOneAddressMakesRoomOfItsOwn) {
  allow_descriptors(4096);
  Coordinator coordinator(with_token());
  Stranger slow(coordinator, "127.0.0.3");
  ASSERT_TRUE(slow.connected());
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 500; ++i) crowd.push_back(std::make_unique<Stranger>(coordinator, "127.0.0.2"));
  EXPECT_EQ(crowd[499]->hear(kGreetingBytes, 5).size(), kGreetingBytes);  // all are in, or were
  EXPECT_LT(seconds_of([&] { crowd[0]->hear(1000, 5); }), 1);
  EXPECT_EQ(words_of([&] { slow.prove(); }), "");
}

TEST(ControlStrangers, WrongTokensAreRefusedQuietlyAfterAWhileAndRightOnesLetIn) {
  std::vector<std::string> told;
  {
    Coordinator coordinator({.token = kToken, .notify = [&](const std::string& words) { told.push_back(words); }});
    int aloud = 0;
    const double took = seconds_of([&] {
      for (int i = 0; i < 200; ++i) {
        Stranger stranger(coordinator);
        stranger.say(std::string(kAnswerBytes, 'x'));
        aloud += stranger.hear(kGreetingBytes + kVerdictBytes, 2).size() == kGreetingBytes + kVerdictBytes;
      }
    });
    EXPECT_GE(aloud, std::min(200, Listener::kMostRefusals));
    EXPECT_LE(aloud, Listener::kMostRefusals * (static_cast<int>(took) + 2));
    EXPECT_LT(seconds_of([&] {
                Session session(place_of(coordinator, 0, 1));
                session.leave();
              }),
              1);
  }
  EXPECT_EQ(told.size(), 1u);
}

// The run does not notice: barriers between ranks at work take what they take without a crowd, to within half a
// second, while a thousand strangers come, say nothing, something or the wrong thing, and come again.
TEST(ControlStrangers, AThousandOfThemAreNotNoticedByRanksAtWork) {
  allow_descriptors(8192);
  constexpr double kMostDelay = 0.5;
  constexpr int kRanks = 4, kCrowd = 1000;
  Coordinator coordinator(with_token());
  std::atomic<bool> over = false;
  std::atomic<int> came = 0;
  std::jthread crowd([&] {
    std::vector<std::unique_ptr<Stranger>> all(kCrowd);
    for (int i = 0; !over || came < 2 * kCrowd; ++i) {
      auto& stranger = all[static_cast<std::size_t>(i % kCrowd)];
      stranger.reset();  // its place is taken by the next
      stranger = std::make_unique<Stranger>(coordinator);
      if (i % 3 > 0) stranger->try_to_say(std::string(i % 3 == 1 ? kAnswerBytes : 10, static_cast<char>(i)));
      ++came;
    }
  });
  std::vector<double> worst(kRanks);
  const double took = seconds_of([&] {
    EXPECT_THAT(words_of_each(kRanks,
                              [&](int rank) {
                                while (came < kCrowd) nap(0.001);  // they join in the midst of it
                                Session session(place_of(coordinator, rank, kRanks, 10));
                                double& longest = worst[static_cast<std::size_t>(rank)];
                                for (int i = 0; i < 50; ++i)
                                  longest = std::max(longest,
                                                     seconds_of([&] { session.barrier(fmt::format("step {}", i)); }));
                                session.leave();
                              }),
                Each(""));
  });
  over = true;
  crowd.join();
  EXPECT_GE(came, 2 * kCrowd);
  for (const double longest : worst) EXPECT_LT(longest, kMostDelay);
  RecordProperty("worst_ms", static_cast<int>(1000 * *std::max_element(worst.begin(), worst.end())));
  RecordProperty("seconds", static_cast<int>(took));
}

}  // namespace
}  // namespace lockstep::tests
