// Nobody gets keys without the token, and what makes no sense is refused. Strangers: control_strangers_test.cpp.
#include <poll.h>

#include <set>

#include "comm/control_ranks.h"

namespace lockstep::tests {
namespace {

using namespace lockstep::control;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ControlToken, MustBeLongEnoughAndIsNeverTheSameTwice) {
  EXPECT_THAT(words_of([] { Token("short"); }), HasSubstr("a token of 5 characters can be guessed; give all ranks"));
  EXPECT_NE(Token::make(), Token::make());
  EXPECT_EQ(Token::make().size(), 64u);
}

// Whatever byte of a proof is wrong, and however little.
TEST(ControlToken, EveryByteIsCompared) {
  const std::string proof = Token::make().substr(0, kVerdictBytes);
  EXPECT_TRUE(equal_in_constant_time(proof, proof));
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_FALSE(equal_in_constant_time(proof, proof.substr(1)));
  EXPECT_FALSE(equal_in_constant_time(proof, proof + proof.back()));
  for (std::size_t at = 0; at < proof.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = proof;
      other[at] = static_cast<char>(other[at] ^ (1 << bit));
      EXPECT_FALSE(equal_in_constant_time(proof, other)) << "byte " << at << ", bit " << bit;
    }
}

// One handshake between two ends in memory.
struct Handshakes {
  explicit Handshakes(const Token& ranks = Token(kToken)) : coordinators(kToken), other(ranks) {}
  Token coordinators, other;
  CoordinatorHandshake coordinator{coordinators};
  RankHandshake rank{other};
};

bool equal(const Secret& a, const Secret& b) { return a.view() == b.view(); }

TEST(ControlToken, TheEndsGetTheSameTwoKeysAndNewOnesEachTime) {
  std::set<std::string> all;
  for (int i = 0; i < 3; ++i) {
    Handshakes ends;
    const auto verdict = ends.coordinator.verdict(ends.rank.answer(ends.coordinator.greeting()));
    ASSERT_TRUE(verdict);
    const SessionKeys keys = ends.rank.keys(verdict->bytes);
    EXPECT_TRUE(equal(keys.sending, verdict->keys.receiving));
    EXPECT_TRUE(equal(keys.receiving, verdict->keys.sending));
    for (const Secret* key : {&keys.sending, &keys.receiving}) all.emplace(key->view());
  }
  EXPECT_EQ(all.size(), 6u);
}

TEST(ControlToken, EveryBitOfAnAnswerAndOfAVerdictCounts) {
  Handshakes ends;
  const std::string answer = ends.rank.answer(ends.coordinator.greeting());
  ASSERT_EQ(answer.size(), kAnswerBytes);
  const auto verdict = ends.coordinator.verdict(answer);
  ASSERT_TRUE(verdict);
  ASSERT_EQ(verdict->bytes.size(), kVerdictBytes);
  for (std::size_t bit = 0; bit < 8 * kAnswerBytes; ++bit)
    EXPECT_FALSE(ends.coordinator.verdict(with_flipped(answer, bit))) << bit;
  for (std::size_t bit = 0; bit < 8 * kVerdictBytes; ++bit)
    EXPECT_THAT(words_of([&] { ends.rank.keys(with_flipped(verdict->bytes, bit)); }),
                HasSubstr("does not know the token"))
        << bit;
  for (std::size_t size = 0; size < kAnswerBytes; ++size)
    EXPECT_FALSE(ends.coordinator.verdict(answer.substr(0, size))) << size;
}

// A greeting that somebody has changed on its way makes an answer that does not fit.
TEST(ControlToken, EveryBitOfAGreetingCounts) {
  Handshakes ends;
  const std::string greeting = ends.coordinator.greeting();
  for (std::size_t bit = 0; bit < 8 * kGreetingBytes; ++bit) {
    const std::string changed = with_flipped(greeting, bit);
    std::string answer;
    const std::string words = words_of([&] { answer = ends.rank.answer(changed); });
    EXPECT_EQ(words.empty(), bit >= 8 * kGreetingStart) << bit;
    EXPECT_FALSE(ends.coordinator.verdict(answer)) << bit;  // empty, or to another nonce
  }
}

// Tokens that differ in one character, the first or any other, are two tokens.
TEST(ControlToken, EveryCharacterOfItCounts) {
  const std::string text = kToken;
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string other = text;
    other[at] = other[at] == 'x' ? 'y' : 'x';
    Handshakes ends{Token(other)};
    EXPECT_FALSE(ends.coordinator.verdict(ends.rank.answer(ends.coordinator.greeting()))) << at;
  }
}

// Keys that would make the agreement one that everybody knows, signed with the token all the same.
TEST(ControlToken, AKeyOfNobodyIsRefused) {
  const KeyPair mine = KeyPair::make();
  EXPECT_FALSE(agree_on(mine, std::string(kPublicBytes, '\0')));
  EXPECT_FALSE(agree_on(mine, std::string("\1") + std::string(kPublicBytes - 1, '\0')));
  EXPECT_FALSE(agree_on(mine, "short"));
  EXPECT_TRUE(agree_on(mine, KeyPair::make().shown));
}

TEST(ControlToken, AWrongOneIsRefusedOnBothSidesAndToldOnce) {
  std::vector<std::string> told;
  {
    Coordinator coordinator({.token = kToken, .notify = [&](const std::string& words) { told.push_back(words); }});
    SessionOptions wrong = place_of(coordinator, 0, 1);
    wrong.token = "another token altogether";
    for (int i = 0; i < 3; ++i)
      EXPECT_LT(seconds_of([&] {
                  EXPECT_THAT(words_of([&] { Session session(wrong); }),
                              HasSubstr("the coordinator refuses this rank's token; give all ranks the same one"));
                }),
                1);
    Session session(place_of(coordinator, 0, 1));  // and the right one is let in
    session.leave();
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], AllOf(HasSubstr("127.0.0.1"), HasSubstr("another token")));
}

TEST(ControlToken, ACoordinatorThatDoesNotKnowItIsNotTrusted) {
  Handshakes ends{Token("another token altogether")};
  EXPECT_FALSE(ends.coordinator.verdict(ends.rank.answer(ends.coordinator.greeting())));
  for (const std::size_t size : {kVerdictBytes, kVerdictBytes - 1, std::size_t{0}})
    EXPECT_THAT(words_of([&] { ends.rank.keys(std::string(size, 'x')); }), HasSubstr("does not know the token"));
  EXPECT_THAT(words_of([&] { ends.rank.answer("SSH-2.0-OpenSSH_9.2 Debian, and more of it"); }),
              HasSubstr("no coordinator of ranks"));
}

TEST(ControlToken, AnOldAnswerDoesNotFitANewGreetingNorAnOldVerdictANewRank) {
  Handshakes first, second;
  const std::string answer = first.rank.answer(first.coordinator.greeting());
  const auto verdict = first.coordinator.verdict(answer);
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(second.coordinator.verdict(answer));
  second.rank.answer(first.coordinator.greeting());  // whoever replays the coordinator sends its greeting, too
  EXPECT_THAT(words_of([&] { second.rank.keys(verdict->bytes); }), HasSubstr("does not know the token"));
}

// What one end has said is of no use as what the other says.
TEST(ControlToken, AnAnswerIsNoVerdict) {
  Handshakes ends;
  const std::string answer = ends.rank.answer(ends.coordinator.greeting());
  EXPECT_THAT(words_of([&] { ends.rank.keys(answer); }), HasSubstr("does not know the token"));
}

// Its greeting was shorter: nobody waits for the rest of it.
TEST(ControlToken, ACoordinatorOfAnotherVersionIsNamedAtOnce) {
  for (const std::string& greeting :
       {std::string("LSCT\1\0\0\0", 8) + std::string(16, 'n'), std::string("LSCT\3\0\0\0", 8)}) {
    const Socket listening = listen_on("127.0.0.1", 0);
    std::jthread other([&] {
      if (!wait_for(listening.descriptor(), POLLIN, Clock::now() + seconds(5))) return;
      std::string from;
      TcpStream peer(accept_from(listening, from));
      peer.write(greeting);
      peer.flush();
      peer.finish(5);
    });
    const double took = seconds_of([&] {
      EXPECT_THAT(
          words_of([&] { Session session({.port = port_of(listening), .token = kToken, .deadline_seconds = 5}); }),
          HasSubstr("is of another version; start all ranks with the same program"));
    });
    EXPECT_LT(took, 1);
  }
}

// Frames.

TEST(ControlFrames, ThatBreakALimitAreRefused) {
  const auto broken = [](std::size_t at, char byte) {
    std::string header = header_of({FrameType::heartbeat, 1, ""}).encode();
    header[at] = byte;
    return words_of([&] { FrameHeader::decode(header); });
  };
  EXPECT_THAT(broken(0, 0), HasSubstr("0 in the type of a frame"));
  EXPECT_THAT(broken(0, 12), HasSubstr("12 in the type of a frame"));
  EXPECT_THAT(broken(8, 2), HasSubstr("131072 in the length of a frame"));
  EXPECT_EQ(broken(2, 1), "");
  const std::string join = Join{1, 2, 3, "h", 4}.encode();
  EXPECT_THAT(words_of([&] { Join::decode(join.substr(0, join.size() - 1)); }), HasSubstr("ends too early"));
  EXPECT_THAT(words_of([&] { Join::decode(join + "x"); }), HasSubstr("1 bytes too many"));
  EXPECT_THAT(words_of([&] { Join::decode(Join{1, 2, 0.001, "h", 4}.encode()); }), HasSubstr("a deadline of 0.001 s"));
  EXPECT_THAT(words_of([&] { Join::decode(Join{1, 2, 3, "h\n", 4}.encode()); }), HasSubstr("10 in a host's name"));
}

// Of an agent's connection (launch/agent_message.h) and not of a rank's, or of the coordinator's own.
TEST(ControlFrames, ThatNoRankSendsAreRefused) {
  Membership epoch(1, 1, [](int, FrameType, const std::string&) {});
  epoch.join({.rank = 0, .size = 1, .deadline = 10, .host = "h"});
  epoch.welcome_if_complete();
  for (const FrameType type : {FrameType::agent, FrameType::welcome, FrameType::refused, FrameType::reply})
    EXPECT_THAT(words_of([&] {
                  epoch.take(0, {type, 1, ""});
                }),
                HasSubstr(fmt::format("a frame of type {} from a rank", static_cast<int>(type))));
}

// What a rank with the token may say wrongly of its groups and calls.
TEST(ControlFrames, OfGroupsAndCallsThatContradictEachOtherAreRefused) {
  Calls calls(3);
  const auto opened = [&](int rank, const GroupSpec& spec) { return words_of([&] { calls.open(rank, spec); }); };
  EXPECT_EQ(opened(0, {1, "w", "w", {0, 1}}), "");
  EXPECT_THAT(opened(0, {2, "w", "w", {0, 1}}), HasSubstr("'w' is opened twice"));
  EXPECT_THAT(opened(0, {1, "x", "x", {0, 1}}), HasSubstr("group 1 is open already"));
  EXPECT_THAT(opened(0, {3, "x", "x", {0, 0, 1}}), HasSubstr("a rank twice"));
  EXPECT_THAT(opened(0, {3, "x", "x", {0, 3}}), HasSubstr("a group with a rank 3"));
  EXPECT_THAT(opened(0, {3, "x", "x", {1, 2}}), HasSubstr("of other ranks"));
  const auto noted = [&](Record record) { return words_of([&] { calls.note(0, {&record, 1}); }); };
  EXPECT_EQ(noted({.group = 1, .sequence = 5}), "");
  EXPECT_THAT(noted({.group = 1, .sequence = 5}), HasSubstr("#5 of 'w' after #5"));
  EXPECT_THAT(noted({.group = 9, .sequence = 6}), HasSubstr("group 9 is not open"));
  EXPECT_THAT(noted({.group = 1, .sequence = 6, .op = CommOp::broadcast, .peer = 2}), HasSubstr("a peer 2 of 2"));
  EXPECT_THAT(noted({.group = 1, .sequence = 6, .op = CommOp::send, .peer = 0}), HasSubstr("a peer 0 of 2"));
  EXPECT_THAT(words_of([&] { calls.close(1, 1); }), HasSubstr("group 1 is not open"));
}

}  // namespace
}  // namespace lockstep::tests
