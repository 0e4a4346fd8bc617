// lockstep schedule as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "spec/pipeline/clock.h"
#include "support/program.h"
#include "telemetry/trace.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome schedule(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "schedule");
  return run_program(arguments);
}

std::string schedule_out(const std::vector<std::string>& arguments) {
  const Outcome o = schedule(arguments);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  return o.out;
}

std::string file_text(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// A run of 1f1b over three stages whose steps take 2 and 4 ms, and whose messages take 1 ms.
std::string write_run(const TemporaryFolder& folder) {
  const PipelineSchedule made = make_schedule(ScheduleKind::one_f_one_b, {3, 4, 1});
  const PipelineTimeline line = timed(made, [](int) { return ChunkTimes{2e-3, 2e-3, 2e-3, 1e-3}; });
  Trace trace{.layout = "pp=3,micro=4", .schedule = to_text(made), .stage_of = {0, 1, 2}, .spans = {}};
  for (const std::int64_t step : {1, 2})
    for (int r = 0; r < 3; ++r)
      for (std::size_t i = 0; i < line.stages[static_cast<std::size_t>(r)].size(); ++i) {
        const ChunkSpan& span = line.stages[static_cast<std::size_t>(r)][i];
        const double zero = static_cast<double>(step);
        trace.spans.push_back(
            {"unit", SpanKind::compute, r, step, static_cast<int>(i), zero + span.begin, zero + span.end});
      }
  write_trace(folder / "trace.json", trace);
  return folder / "trace.json";
}

TEST(Schedule, DrawsAndCounts) {
  const std::string out = schedule_out({"--kind", "zb-h1", "--pp", "4", "--micro", "8"});
  EXPECT_THAT(out, HasSubstr("zb-h1: 4 stages, 8 micro-batches\n"));
  EXPECT_THAT(out, HasSubstr("stage 3 ......F0I0F1I1F2I2F3I3W0F4I4W1F5I5W2F6I6W3F7I7W4W5W6W7\n"));
  EXPECT_THAT(out, HasSubstr("makespan 27, bubble 11.1 %\n"));
  EXPECT_THAT(out, HasSubstr("  1      11.1 %                     7.7 %                    4\n"));
  EXPECT_THAT(out, Not(HasSubstr("\033")));  // no terminal, no colours
  EXPECT_THAT(schedule_out({"--color", "always"}), HasSubstr("\033[30;48;5;75m0 \033[0m"));
}

TEST(Schedule, GivesEachChunkItsShareOfAStagesTime) {
  const json one = json::parse(schedule_out({"--kind", "1f1b", "--json"})),
             two = json::parse(schedule_out({"--kind", "interleaved", "--chunks", "4", "--json"}));
  EXPECT_EQ(one["makespan"], 33);
  EXPECT_EQ(two["makespan"], 3 * 8 + 3 * 3 / 4.0);
  EXPECT_EQ(two["shape"]["chunks"], 4);
  EXPECT_EQ(two["stages"][0]["steps"].size(), 2u * 4 * 8);
  EXPECT_EQ(one["stages"][1]["in_flight"], 3);
  EXPECT_NEAR(one["bubble"], 3.0 / 11, 1e-12);
  EXPECT_NEAR(one["stages"][1]["own_bubble"], 0.2, 1e-12);
  const json slow = json::parse(schedule_out({"--tf", "2", "--tb", "3", "--tw", "0.5", "--tcomm", "0.25", "--json"}));
  EXPECT_EQ(slow["stages"][0]["steps"][4]["end"].get<double>() - slow["stages"][0]["steps"][4]["begin"].get<double>(),
            3.5);
  EXPECT_GT(slow["makespan"], 11 * 5.5 + 6 * 0.25 - 1e-9);
}

TEST(Schedule, ComparesAllKinds) {
  const std::string out =
      schedule_out({"--compare", "--pp", "8", "--micro", "32", "--model", "llama3-70b", "--seq", "8192", "--tp", "8"});
  for (const char* row : {"  afab              1  17.9 %       117      1.000                      32             32   "
                          "           84.9 GiB\n",
                          "  1f1b              1  17.9 %       117      1.000                       8              8   "
                          "           21.6 GiB\n",
                          "  zb-h1             1   6.8 %       103      0.880                       8              8   "
                          "           21.6 GiB\n",
                          "  zb-v              2   3.5 %      99.5      0.850                       8              8   "
                          "           21.6 GiB\n"})
    EXPECT_THAT(out, HasSubstr(row));
  EXPECT_THAT(out, HasSubstr("llama3-70b split evenly, a sample of 8192 tokens per micro-batch, bf16, tp=8\n"));
  const json all = json::parse(schedule_out({"--compare", "--pp", "4", "--micro", "8", "--chunks", "3", "--json"}));
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[2]["shape"]["chunks"], 3);
  EXPECT_EQ(all[2]["activations_first"], 5);  // 15 of a third each
  EXPECT_EQ(all[1]["of_1f1b"], 1);
  // Bytes as counts: micro-batches in flight, and what a step needs beside them.
  const json usual = json::parse(schedule_out({"--compare", "--pp", "4", "--micro", "8", "--json"}));
  for (const json& each : usual)
    EXPECT_NEAR(each["activation_bytes"].get<double>() / usual[1]["activation_bytes"].get<double>(),
                each["activations_most"].get<double>() / 4, 0.05 * each["activations_most"].get<double>() / 4)
        << each["schedule"];
  EXPECT_TRUE(json::parse(schedule_out({"--compare", "--pp", "512", "--micro", "64", "--json"}))[0]["activation_bytes"]
                  .is_null());
}

TEST(Schedule, ReadsBackTheTextThatItPrints) {
  const TemporaryFolder folder;
  for (const char* kind : {"afab", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    const std::string text = schedule_out({"--kind", kind, "--pp", "3", "--micro", "5", "--text"});
    std::ofstream(folder / "mine.txt") << text;
    json named = json::parse(schedule_out({"--kind", kind, "--pp", "3", "--micro", "5", "--json"})),
         read = json::parse(schedule_out({"--file", folder / "mine.txt", "--json"}));
    EXPECT_EQ(read["schedule"], folder / "mine.txt");
    named.erase("schedule"), read.erase("schedule");
    EXPECT_EQ(read, named);
  }
}

TEST(Schedule, WritesAPicture) {
  const TemporaryFolder folder;
  schedule_out({"--kind", "zb-v", "--svg", folder / "a.svg"});
  const std::string svg = file_text(folder / "a.svg");
  EXPECT_THAT(svg, HasSubstr("zb-v: 4 stages of 2 chunks, 8 micro-batches"));
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

TEST(Schedule, HoldsARunBesideItsIdeal) {
  const TemporaryFolder folder;
  const std::string trace = write_run(folder);
  const json all = json::parse(schedule_out({"--from-trace", trace, "--json"}));
  EXPECT_EQ(all["step"], 2);
  EXPECT_NEAR(all["ideal"]["bubble"], 2.0 / 6, 1e-6);
  EXPECT_NEAR(all["ideal"]["makespan"], 0.036, 1e-8);
  const PipelineTimeline line = timed(make_schedule(ScheduleKind::one_f_one_b, {3, 4, 1}), [](int) {
    return ChunkTimes{2e-3, 2e-3, 2e-3, 1e-3};
  });
  EXPECT_NEAR(all["measured"]["bubble"], line.bubble(), 1e-6);
  EXPECT_NEAR(all["measured"]["stages"][1]["own_bubble"], line.own_bubble(1), 1e-6);
  const json slow = json::parse(schedule_out({"--from-trace", trace, "--tcomm", "1", "--step", "1", "--json"}));
  EXPECT_EQ(slow["step"], 1);
  EXPECT_NEAR(slow["ideal"]["bubble"], line.bubble(), 1e-6);
  const std::string out = schedule_out({"--from-trace", trace, "--svg", folder / "b.svg"});
  EXPECT_THAT(out, HasSubstr("step 2 of pp=3,micro=4: 3 stages, 4 micro-batches\n"));
  EXPECT_THAT(out, HasSubstr("bubble: 45.5 % measured (0.0 % of it within steps), 33.3 % ideal\n"));
  EXPECT_THAT(out, HasSubstr("\nms "));
  EXPECT_THAT(file_text(folder / "b.svg"), HasSubstr(">measured</text>"));
  EXPECT_EQ(schedule_out({"--from-trace", trace, "--text"}),
            "# step 2 of pp=3,micro=4: 3 stages, 4 micro-batches\n" +
                to_text(make_schedule(ScheduleKind::one_f_one_b, {3, 4, 1})));
}

TEST(Schedule, MistakesAreOneLineWithARemedy) {
  const TemporaryFolder folder;
  std::ofstream(folder / "bad.txt") << "F0 B0\nF0 B0 Q1\n";
  write_trace(folder / "plain.json", {.layout = "dp=2", .schedule = "", .stage_of = {0, 0}, .spans = {}});
  const std::string trace = write_run(folder), huge = folder / "huge.txt";
  for (std::ofstream out(huge); out.tellp() < (5 << 20);) out << "F0 B0\n";
  const std::vector<std::tuple<std::vector<std::string>, int, std::string>> cases{
      {{"--kind", "zbh1"}, 2, "did you mean 'zb-h1'?"},
      {{"--pp", "0"}, 2, "--pp"},
      {{"--pp", "1025"}, 2, "--pp"},
      {{"--micro", "0"}, 2, "--micro"},
      {{"--pp", "1024", "--micro", "1024"}, 2, "use fewer micro-batches or stages"},
      {{"--chunks", "2"}, 2, "has one chunk per stage"},
      {{"--kind", "zb-v", "--chunks", "3"}, 2, "use --chunks 2"},
      {{"--tf", "nan"}, 2, "--tf nan"},
      {{"--tw", "inf"}, 2, "--tw inf"},
      {{"--tb", "0"}, 2, "--tb 0"},
      {{"--tcomm", "-1"}, 2, "--tcomm -1"},
      {{"--tf", "fast"}, 2, "--tf"},
      {{"--color", "blue"}, 2, "--color 'blue'"},
      {{"--width", "3"}, 2, "--width"},
      {{"--step", "3"}, 2, "--from-trace"},
      {{"--compare", "--kind", "afab"}, 2, "--compare"},
      {{"--compare", "--model", "llama3-8"}, 2, "did you mean 'llama3-8b'?"},
      {{"--compare", "--seq", "5", "--tp", "2"}, 2, "use --seq 6"},
      {{"--compare", "--tp", "3", "--seq", "6"}, 2, "use tp = 1, 2, 4, 8"},
      {{"--tp", "2"}, 2, "--compare"},
      {{"--json", "--text"}, 2, "--text"},
      {{"--svg", folder / "no/a.svg"}, 2, "there is no folder"},
      {{"--svg", folder.path().string()}, 2, "it is a folder"},
      {{"--file", folder / "absent"}, 2, "cannot open"},
      {{"--file", folder / "bad.txt"}, 2, "bad.txt:2: 'Q1' is no step"},
      {{"--file", huge}, 2, "larger than"},
      {{"--file", folder / "bad.txt", "--pp", "3"}, 2, "--pp"},
      {{"--from-trace", folder / "absent"}, 4, "no such file"},
      {{"--from-trace", folder / "bad.txt"}, 4, "not a whole JSON"},
      {{"--from-trace", folder / "plain.json"}, 4, "record a run whose layout has pp > 1"},
      {{"--from-trace", trace, "--step", "7"}, 2, "it has 2, from 1 to 2"},
      {{"--from-trace", trace, "--pp", "4"}, 2, "--pp"},
  };
  for (const auto& [arguments, code, says] : cases) {
    const Outcome o = schedule(arguments);
    EXPECT_EQ(o.code, code) << arguments[0] << " " << o.err;
    EXPECT_THAT(o.err, HasSubstr(says));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_THAT(o.err, HasSubstr(";"));
    EXPECT_EQ(o.out, "");
  }
}

}  // namespace
}  // namespace lockstep::tests
