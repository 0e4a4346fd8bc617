// What is done in a drill, and how it must end.
//
// kill, stop, leave (SIGTERM, then SIGINT: exit code 130): every other rank names the right one, at once or when the
// deadline passes, and ends with 5. full_disk: the run says so and continues, saves when there is room again, and ends
// with 0 when it is told to. exception (one rank alone cannot write its part of a checkpoint, for good): the run says
// so and continues; told to end, it cannot save, the rank that knows the cause tells it, and all end with 5. In all of
// these no process is left and the run continues from its newest checkpoint. pause (stopped, and woken before the
// deadline): the run goes on, and learns the bits that threads learn.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

namespace lockstep::tests {

enum class Harm : std::uint8_t { kill, stop, leave, full_disk, exception, pause };
const char* name_of(Harm harm);

// Every harm, to ranks that have parts of the batch, without ZeRO and in its third stage, and to stages of a pipeline:
// parameters of a test, and their names.
inline auto every_harm() {
  return ::testing::Combine(
      ::testing::Values(Harm::kill, Harm::stop, Harm::leave, Harm::full_disk, Harm::exception, Harm::pause),
      ::testing::Values("dp=3,micro=3", "dp=3,micro=3,zero=3", "pp=3,micro=3"));
}
std::string name_of_harm(const ::testing::TestParamInfo<std::tuple<Harm, const char*>>& test);

// All axes at once, of sixteen ranks: one of them is lost.
inline constexpr const char* kWholeMesh = "dp=2,pp=2,cp=2,tp=2,micro=2";

// One round, to another rank each time, under this layout. What was not as it should be, or nothing.
std::string round_of(Harm harm, const std::string& layout, int round);

}  // namespace lockstep::tests
