// A command line that is not understood: the nearest thing that is known, all choices, and the page that helps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spec/model/presets.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

struct Mistake {
  std::vector<std::string> arguments;
  std::string says;
};

void expect_refused(const Mistake& mistake) {
  const Outcome o = run_program(mistake.arguments);
  EXPECT_EQ(o.code, 2) << mistake.says;
  EXPECT_EQ(o.out, "") << mistake.says;
  EXPECT_THAT(o.err, HasSubstr(mistake.says));
  EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
}

// Every command, by its own options and its own page.
TEST(UnknownOption, IsNamedWithTheNearestAndTheRightPage) {
  const auto unknown = [](const std::string& word, const std::string& near, const std::string& page) {
    return fmt::format("unknown option '{}'; did you mean '{}'? lockstep{} --help lists all", word, near, page);
  };
  for (const Mistake& mistake : std::vector<Mistake>{
           {{"train", "--rnaks", "4"}, unknown("--rnaks", "--ranks", " train")},
           {{"train", "--rank=4"}, unknown("--rank=4", "--ranks", " train")},
           {{"plan", "--jsn"}, unknown("--jsn", "--json", " plan")},
           {{"schedule", "--mcro", "4"}, unknown("--mcro", "--micro", " schedule")},
           {{"generate", "x", "--top_k", "4"}, unknown("--top_k", "--top-k", " generate")},
           {{"export", "x", "--outt", "y"}, unknown("--outt", "--out", " export")},  // and --out is missing
           {{"tokenize", "x", "--ouz", "y"}, unknown("--ouz", "--out", " tokenize")},
           {{"inspect", "x", "--hlp"}, unknown("--hlp", "--help", " inspect")},
           {{"presets", "--jason"}, unknown("--jason", "--json", " presets")},
           {{"draw", "--lisst"}, unknown("--lisst", "--list", " draw")},
           {{"bench", "--round", "2"}, unknown("--round", "--rounds", " bench")},
           {{"bench", "comm", "--size", "2"}, unknown("--size", "--sizes", " bench comm")},
           {{"compare", "--layots", "x"}, unknown("--layots", "--layouts", " compare")},
           {{"verify", "--exat"}, unknown("--exat", "--exact", " verify")},
           {{"--versoin"}, unknown("--versoin", "--version", "")},
           {{"trian"}, "unknown command 'trian'; did you mean 'train'? lockstep --help lists all"},
           {{"plan", "a.toml", "b.toml"},
            "'b.toml' is one argument too many; lockstep plan --help lists what it takes"},
           {{"plan", "--ranks"}, "; see lockstep plan --help"},
           {{"bench", "comm", "--seconds", "x"}, "; see lockstep bench comm --help"},
       })
    expect_refused(mistake);
}

TEST(Choices, AreListedWhereOneIsNotAmongThem) {
  for (const Mistake& mistake : std::vector<Mistake>{
           {{"generate", "x", "--device", "gpu"}, "--device 'gpu': it must be cpu or cuda; did you mean 'cpu'?"},
           {{"verify", "--layout", "dp=2", "--device", "cudda"}, "it must be cpu or cuda; did you mean 'cuda'?"},
           {{"generate", "x", "--precision", "fp8"},
            "--precision 'fp8': it must be fp64, fp32, bf16 or fp16; did you mean"},
           {{"verify", "--layout", "dp=2", "--precision", "bf61"},
            "it must be fp64, fp32, bf16 or fp16; did you mean 'bf16'?"},
           {{"export", "x", "--out", "y", "--dtype", "int8"}, "--dtype 'int8': it must be fp64, fp32, bf16 or fp16;"},
           {{"bench", "comm", "--algorithms", "rink"},
            "it must be canonical, ring, tree or native; did you mean 'ring'?"},
           {{"bench", "comm", "--ops", "reduce_all"}, "all_reduce, reduce_scatter, all_gather, broadcast"},
           {{"schedule", "--kind", "zb"}, "There are afab, 1f1b, interleaved, zb-h1, zb-v"},
           {{"plan", "--set", "layout.schedule=zb"}, "it must be one of \"afab\", \"1f1b\", \"interleaved\""},
       })
    expect_refused(mistake);
}

TEST(Presets, AreListedWithTheirSizes) {
  const Outcome table = run_program({"presets"});
  ASSERT_EQ(table.code, 0) << table.err;
  const nlohmann::json all = nlohmann::json::parse(run_program({"presets", "--json"}).out);
  ASSERT_EQ(all.size(), preset_names().size());
  for (const std::string_view name : preset_names()) EXPECT_THAT(table.out, HasSubstr(fmt::format("\n  {} ", name)));
  for (const auto& one : all) {
    const auto spec = preset(one["name"].get<std::string>());
    ASSERT_TRUE(spec) << one;
    EXPECT_EQ(one["parameters"], parameter_count(*spec)) << one;
    EXPECT_EQ(one["layers"], spec->layers) << one;
    EXPECT_EQ(one["family"], std::string(name_of(spec->family))) << one;
  }
  EXPECT_THAT(table.out, HasSubstr("8,030,261,248"));  // llama3-8b, as published
  EXPECT_THAT(run_program({"--help"}).out, HasSubstr("presets"));
}

}  // namespace
}  // namespace lockstep::tests
