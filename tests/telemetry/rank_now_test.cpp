// The file of what a rank is doing: what is written comes back, and nothing that is read can do harm.
#include "telemetry/rank_now.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "support/program.h"
#include "telemetry/refused_text.h"

namespace lockstep::tests {
namespace {

RankNow rank_in_a_call() {
  return {.rank = 12,
          .pid = 4711,
          .host = "node-3",
          .step = 1234567,
          .doing = DoingKind::call,
          .action = "backward \"block.3\" é",
          .group = "dp",
          .op = "all_reduce",
          .call = 99,
          .seconds = 1.0 / 3,
          .time = 1.7e9 + 1.0 / 7,
          .quiet = 1.0 / 11,
          .usual = 1.0 / 13};
}

std::string now_refusal(const std::string& text) {
  return refused_text([&] { parse_rank_now(text, "here"); });
}

TEST(RankNow, ComesBackToTheLastBit) {
  const RankNow before = rank_in_a_call();
  const RankNow after = parse_rank_now(to_json_line(before), "here");
  EXPECT_EQ(std::tie(after.rank, after.pid, after.host, after.step, after.doing, after.action),
            std::tie(before.rank, before.pid, before.host, before.step, before.doing, before.action));
  EXPECT_EQ(std::tie(after.group, after.op, after.call, after.seconds, after.time),
            std::tie(before.group, before.op, before.call, before.seconds, before.time));
  EXPECT_EQ(std::tie(after.quiet, after.usual), std::tie(before.quiet, before.usual));
}

// Files of earlier versions have neither.
TEST(RankNow, ThatDoesNotSayHowLongItIsQuietIsQuietSinceItCameThere) {
  nlohmann::json file = nlohmann::json::parse(to_json_line(rank_in_a_call()));
  file.erase("quiet");
  file.erase("usual");
  const RankNow read = parse_rank_now(file.dump(), "here");
  EXPECT_EQ(read.quiet, read.seconds);
  EXPECT_FALSE(read.usual);
  file["quiet"] = 1e9;
  EXPECT_EQ(parse_rank_now(file.dump(), "here").quiet, read.seconds) << "no longer than it has been there";
  RankNow before = rank_in_a_call();
  before.usual.reset();
  EXPECT_FALSE(parse_rank_now(to_json_line(before), "here").usual);
}

TEST(RankNow, HealthComesBackAndIsLeftOutWhereItIsNone) {
  RankNow before = rank_in_a_call();
  before.cpu = RankCpu{.ran = 1.5, .waited = 0.5};
  before.memory = RankMemory{.used = 7, .limit = 9, .held = 5, .swing = 3};
  before.gpu = RankGpu{.sm_mhz = 1980,
                       .temperature = 71,
                       .throttled = {"power brake"},
                       .throttled_seconds = 2.5,
                       .memory_used = 3,
                       .memory_total = 4};
  const RankNow after = parse_rank_now(to_json_line(before), "here");
  ASSERT_TRUE(after.cpu && after.memory && after.gpu);
  EXPECT_EQ(after.cpu->waited_share(), 0.25);
  EXPECT_EQ(std::tie(after.memory->used, after.memory->limit, after.memory->held, after.memory->swing),
            std::tie(before.memory->used, before.memory->limit, before.memory->held, before.memory->swing));
  EXPECT_EQ(std::tie(after.gpu->sm_mhz, after.gpu->temperature, after.gpu->throttled, after.gpu->throttled_seconds,
                     after.gpu->memory_used, after.gpu->memory_total),
            std::tie(before.gpu->sm_mhz, before.gpu->temperature, before.gpu->throttled, before.gpu->throttled_seconds,
                     before.gpu->memory_used, before.gpu->memory_total));
  const RankNow none = parse_rank_now(to_json_line(rank_in_a_call()), "here");
  EXPECT_FALSE(none.cpu || none.memory || none.gpu);
  std::string odd = to_json_line(rank_in_a_call());
  odd.replace(odd.rfind('}'), 1,
              R"(,"cpu":7,"memory":{"used":"x","limit":-1},"gpu":{"throttled":[1,"a"],"sm_mhz":null}})");
  const RankNow read = parse_rank_now(odd, "here");
  EXPECT_FALSE(read.cpu);
  EXPECT_EQ(read.memory->share(), 0);
  EXPECT_EQ(read.gpu->throttled, std::vector<std::string>{"a"});
}

TEST(RankNow, InNoCallHasNone) {
  const std::string line = to_json_line(RankNow{.pid = 1});
  EXPECT_TRUE(nlohmann::json::parse(line)["call"].is_null());
  const RankNow now = parse_rank_now(line, "here");
  EXPECT_EQ(now.action + now.group + now.op, "");
  EXPECT_EQ(now.call, -1);
}

TEST(RankNow, NamesOfAnyBytesAndLengthAreWrittenAndRead) {
  for (const std::string& unit : {std::string("\xff"), std::string("é"), std::string("\0", 1), std::string("a")}) {
    std::string name;
    for (int i = 0; i < 5000; ++i) name += unit;
    RankNow now = rank_in_a_call();
    now.action = now.group = now.op = now.host = name;
    const RankNow read = parse_rank_now(to_json_line(now), "here");
    EXPECT_GT(read.action.size(), kMostRankTextBytes - 4);
    EXPECT_LE(read.action.size(), kMostRankTextBytes);
  }
}

TEST(HostileRankNow, CutAnywhereIsRefused) {
  const std::string line = to_json_line(rank_in_a_call());
  for (std::size_t size = 0; size + 1 < line.size(); ++size) EXPECT_NE(now_refusal(line.substr(0, size)), "") << size;
  EXPECT_EQ(now_refusal(line.substr(0, line.size() - 1)), "");
}

TEST(HostileRankNow, WithAnyByteChangedIsReadOrRefused) {
  const std::string line = to_json_line(rank_in_a_call());
  for (std::size_t at = 0; at < line.size(); ++at)
    for (int byte = 0; byte < 256; ++byte) {
      std::string other = line;
      other[at] = static_cast<char>(byte);
      now_refusal(other);
    }
}

TEST(HostileRankNow, WithAValueOfAnotherTypeOrRangeIsRefused) {
  using Json = nlohmann::json;
  const Json file = Json::parse(to_json_line(rank_in_a_call()));
  const Json values[] = {true, -1, 1e300, 18446744073709551615u, "text", Json::array(), Json::object(), nullptr};
  for (const auto& [key, unused] : file.items()) {
    int refused = 0;
    for (const Json& value : values) {
      Json other = file;
      other[key] = value;
      refused += !now_refusal(other.dump()).empty();
    }
    EXPECT_GE(refused, 5) << key;
    if (key == "quiet" || key == "usual") continue;  // a file need not have them
    Json other = file;
    other.erase(key);
    EXPECT_EQ(now_refusal(other.dump()).find("here: has no " + key), 0u);
  }
  const auto changed = [&](const char* key, const Json& value) {
    Json other = file;
    other[key] = value;
    return now_refusal(other.dump());
  };
  EXPECT_NE(changed("rank", kMostRanks), "");
  EXPECT_NE(changed("rank", 1.0), "");
  EXPECT_NE(changed("pid", 0), "");
  EXPECT_NE(changed("doing", "sleeping"), "");
  EXPECT_NE(changed("call", -1), "");
  EXPECT_NE(changed("action", std::string(kMostRankTextBytes + 1, 'a')), "");
  EXPECT_EQ(changed("other", 3), "");
  const std::string line = file.dump();
  EXPECT_NE(now_refusal(line + std::string(1, '\0')), "");
  EXPECT_NE(now_refusal(line + "{}"), "");
  EXPECT_NE(now_refusal(line + std::string(kMostRankNowBytes, ' ')), "");
  EXPECT_NE(now_refusal(std::string(kMostRankNowBytes, '[')), "");
}

TEST(HostileRankNow, ThatIsNoFileIsRefusedAndOneThatIsNotThereIsNothing) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_rank_now(folder / "absent"));
  EXPECT_FALSE(read_rank_now(folder / "absent/rank-00000.now"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::ofstream(folder / "empty");
  std::ofstream(folder / "large") << to_json_line(rank_in_a_call());
  EXPECT_TRUE(read_rank_now(folder / "large"));
  std::filesystem::resize_file(folder / "large", std::uintmax_t{1} << 40);  // a hole: no disk is used
  for (const std::string& path :
       {folder.path().string(), std::string("/dev/zero"), folder / "pipe", folder / "empty", folder / "large"})
    EXPECT_THROW(read_rank_now(path), UserError) << path;
}

}  // namespace
}  // namespace lockstep::tests
