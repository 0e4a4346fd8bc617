// The drawing of a step says what its actions are.
#include "pictures/step_picture.h"

#include <gtest/gtest.h>

namespace lockstep::tests {
namespace {

const std::vector<std::string> kNames{"embedding", "block.0", "block.1", "head"};

TEST(StepPicture, ShowsWhatIsWholeAndWhatIsUnderWay) {
  const StepShape three{.units = 4, .micro = 1, .gathers = true};
  EXPECT_EQ(picture_of(serial_step(three), three, kNames),
            "embedding  F.........IWNU...\n"
            "block.0    =F...===IWs.N.U..\n"
            "block.1    .=F===IWs...N..U.\n"
            "head       ..=FIWs.....N...U\n");
  const StepShape one{.units = 4, .micro = 1, .publishes = true};
  EXPECT_EQ(picture_of(serial_step(one), one, kNames),
            "embedding  F.........IWNUp..\n"
            "block.0    .F......IWs.N.Up.\n"
            "block.1    ..F...IWs...N..Up\n"
            "head       ...FIWs.....N...U\n");
}

TEST(StepPicture, OfManyMicroBatchesHasTheFirstAndTheLast) {
  const StepShape shape{.units = 4, .micro = 5, .reduces_each = true};
  const std::string text = picture_of(serial_step(shape), shape, kNames);
  EXPECT_EQ(text.substr(0, text.find('\n')), "embedding  F.........IW|F.........IWNU...");
}

}  // namespace
}  // namespace lockstep::tests
