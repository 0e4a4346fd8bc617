// What no kernel could run is refused where it is read, not where it would crash.
#include "spec/model/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/tiny_specs.h"

namespace lockstep {
namespace {

void expect_invalid(const ModelSpec& spec, const char* what) {
  try {
    validate(spec, "here");
    FAIL() << "accepted " << what;
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(what));
  }
}

TEST(ModelSpec, AcceptsEveryTinySpec) {
  for (const auto& [name, spec] : tests::tiny_specs()) EXPECT_NO_THROW(validate(spec, name)) << name;
}

TEST(ModelSpec, RefusesHeadsWiderThanAttentionsTiles) {
  ModelSpec spec = tests::tiny_specs()[0].spec;
  spec.head_width = 258;
  expect_invalid(spec, "head_width");
}

TEST(ModelSpec, RefusesMoreTokensOrPositionsThanAnInt32CanName) {
  ModelSpec spec = tests::tiny_specs()[0].spec;
  spec.vocabulary = std::int64_t{1} << 31;
  expect_invalid(spec, "vocabulary");
  spec = tests::tiny_specs()[0].spec;
  spec.max_positions = std::int64_t{1} << 31;
  expect_invalid(spec, "max_positions");
}

}  // namespace
}  // namespace lockstep
