// What follows an ending of the ranks.
#include "launch/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

TEST(RestartPolicy, EndingsThatAUserMustMendAreFinalWithTheirCode) {
  for (const int code : {0, 1, 2, 3, 4, 6, 130}) {
    RestartPolicy policy(10);
    const RestartDecision decision = policy.decide({.code = code, .last_step = 7}, false);
    EXPECT_FALSE(decision.restarts) << code;
    EXPECT_EQ(decision.code, code);
    EXPECT_EQ(decision.reason, "");
  }
}

TEST(RestartPolicy, SignalsAndFailuresOfTheEnvironmentAreFaultsAndRestart) {
  for (const int code : {5, 128 + 9, 128 + 11, 127}) {
    RestartPolicy policy(10);
    const RestartDecision decision = policy.decide({.code = code, .last_step = 7}, false);
    EXPECT_TRUE(decision.restarts) << code;
    EXPECT_THAT(decision.reason, HasSubstr("after step 7"));
  }
}

TEST(RestartPolicy, ARunThatIsAskedToEndDoesNotStartAgain) {
  RestartPolicy policy(10);
  EXPECT_FALSE(policy.decide({.code = 128 + 9}, true).restarts);
  EXPECT_FALSE(policy.decide({.code = 5, .found = "rank 1 is stopped"}, true).restarts);
}

TEST(RestartPolicy, ThreeFaultsInARowWithoutANewStepEndIt) {
  RestartPolicy policy(10);
  EXPECT_TRUE(policy.decide({.code = 5, .last_step = 7}, false).restarts);
  EXPECT_TRUE(policy.decide({.code = 5, .last_step = 6}, false).restarts);
  const RestartDecision decision = policy.decide({.code = 5, .last_step = 7}, false);
  EXPECT_FALSE(decision.restarts);
  EXPECT_EQ(decision.code, 5);
  EXPECT_THAT(decision.reason, HasSubstr("without a new step after 7"));
}

std::string reason_of(const std::vector<std::string>& places) {
  RestartPolicy policy(10);
  policy.decide({.code = 5, .last_step = 3, .place = "slot 9 of z"}, false);  // of an earlier step
  RestartDecision decision;
  for (const std::string& place : places) decision = policy.decide({.code = 5, .last_step = 7, .place = place}, false);
  return decision.reason;
}

TEST(RestartPolicy, TheLastReasonSaysWhatTheFaultsHaveInCommon) {
  EXPECT_THAT(reason_of({"slot 1 of b", "slot 1 of b", "slot 1 of b"}), HasSubstr("all of them at slot 1 of b"));
  EXPECT_THAT(reason_of({"slot 1 of b", "slot 0 of c", "slot 1 of b"}), HasSubstr("step 8 or its data are to blame"));
  const std::string unknown = reason_of({"slot 1 of b", "", "slot 1 of b"});
  EXPECT_THAT(unknown, HasSubstr("`lockstep doctor`"));
  EXPECT_THAT(unknown, ::testing::Not(HasSubstr("blame")));
}

TEST(RestartPolicy, ANewStepForgivesEarlierFaultsUpToTheMostRestarts) {
  RestartPolicy policy(8);
  for (int fault = 0; fault < 8; ++fault)
    EXPECT_TRUE(policy.decide({.code = 5, .last_step = fault / 2}, false).restarts) << fault;
  const RestartDecision decision = policy.decide({.code = 5, .last_step = 100}, false);
  EXPECT_FALSE(decision.restarts);
  EXPECT_THAT(decision.reason, HasSubstr("restarted 8 times"));
}

TEST(RestartPolicy, NoRestartsAreNone) {
  RestartPolicy policy(0);
  EXPECT_FALSE(policy.decide({.code = 5, .last_step = 3}, false).restarts);
}

}  // namespace
}  // namespace lockstep::tests
