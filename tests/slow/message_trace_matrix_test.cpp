// The traces of fifty layouts, of which tests/train/message_trace_test.cpp has a sample.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/mesh_matrix.h"
#include "support/traced_run.h"

namespace lockstep::tests {
namespace {

TEST(WholeMessageTrace, OfFiftyLayoutsHasNoMessageReceivedBeforeItWasSent) {
  std::int64_t messages = 0, arrows = 0, earliest = 0;
  for (const MeshCase& one : mesh_sample(50, 20)) {
    const TraceFacts facts = traced_facts(one.run(Precision::fp32));
    for (const std::string& fault : facts.faults) ADD_FAILURE() << one.words() << ": " << fault;
    EXPECT_EQ(facts.clock_error, 0) << one.words();
    EXPECT_GT(facts.arrows, 0) << one.words();
    EXPECT_GE(facts.earliest_receipt, 0) << one.words();
    earliest = messages == 0 ? facts.earliest_receipt : std::min(earliest, facts.earliest_receipt);
    messages += facts.messages;
    arrows += facts.arrows;
  }
  std::printf("50 layouts: %ld messages, %ld arrows, the quickest receipt %ld ns after its send\n",
              static_cast<long>(messages), static_cast<long>(arrows), static_cast<long>(earliest));
}

}  // namespace
}  // namespace lockstep::tests
