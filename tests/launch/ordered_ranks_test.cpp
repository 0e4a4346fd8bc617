// Orders that wait for copies of the state, and what becomes of those that are taken back meanwhile.
#include "launch/ordered_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include "comm/control/handshake.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// The only host, which brings nothing, and finds that out no sooner than at the first look.
class OrdersThatWait : public ::testing::Test {
 protected:
  OrdersThatWait() {
    std::filesystem::create_directories(folder_.path() / "memory");
    ranks_.share_copies({.folder = folder_.path() / "memory",
                         .agent = 0,
                         .agents = 1,
                         .address = "127.0.0.1",
                         .token = control::Token::make(),
                         .endpoints = endpoints_,
                         .tell = [](const std::string&) {}});
  }
  void order(const std::vector<int>& ranks, bool joins) {
    EpochOrder order{.epoch = 1, .resumes = true, .joins = joins};
    for (const int rank : ranks) order.places.push_back({.rank = rank, .slot = rank});
    ranks_.start(order);
  }
  // Looks until that many ends were told.
  void look(std::size_t ends) {
    std::size_t told = 0;
    for (int i = 0; i < 1000 && told < ends; ++i, std::this_thread::sleep_for(10ms))
      for (const OrderedRanks::Ended& ended : ranks_.look()) {
        EXPECT_EQ(ended.epoch, 1u);
        told += ended.ends.size();
        for (const RankEnd& end : ended.ends) ends_[end.rank].push_back(end);
      }
    EXPECT_EQ(told, ends);
  }

  TemporaryFolder folder_;
  AgentFolder endpoints_{folder_.path() / "run", 0};
  std::vector<int> begun_;                    // ranks whose processes were started
  std::map<int, std::vector<RankEnd>> ends_;  // by rank
  OrderedRanks ranks_{[this](const EpochOrder&, const EpochOrder::Place& place) {
                        begun_.push_back(place.rank);
                        return ProcessCommand{.words = {"true"}};
                      },
                      [](const std::string&) {}};
};

RankEnd killed(int rank) { return {.rank = rank, .code = 128 + SIGKILL, .killed = true}; }
RankEnd done(int rank) { return {.rank = rank}; }

TEST_F(OrdersThatWait, StartNoRankThatIsKilledMeanwhile) {
  order({0, 1}, false);
  order({2, 3}, true);
  ranks_.kill({1, 2});
  order({1}, true);  // again
  look(5);
  EXPECT_THAT(begun_, ElementsAre(0, 3, 1));
  EXPECT_THAT(ends_[0], ElementsAre(done(0)));
  EXPECT_THAT(ends_[1], UnorderedElementsAre(killed(1), done(1)));
  EXPECT_THAT(ends_[2], ElementsAre(killed(2)));
  EXPECT_THAT(ends_[3], ElementsAre(done(3)));
}

TEST_F(OrdersThatWait, LetThoseThatJoinStartThoughNoneOfTheFirstIsLeft) {
  order({0, 1}, false);
  ranks_.kill({0, 1});
  order({0, 1}, true);
  ranks_.kill({1});
  look(4);
  EXPECT_THAT(begun_, ElementsAre(0));
  EXPECT_THAT(ends_[0], UnorderedElementsAre(killed(0), done(0)));
  EXPECT_THAT(ends_[1], ElementsAre(killed(1), killed(1)));
}

}  // namespace
}  // namespace lockstep::tests
