// Layouts that the golden runs are held to: eight samples of 32 tokens; 4 heads with 2 key/value heads, or more.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "spec/layout/layout_toml.h"
#include "train/reference.h"

namespace lockstep::tests {

inline constexpr const char* kGoldenFolders[] = {"llama-tiny", "llama-tied-scaled", "llama-mha-8l", "gpt2-tiny",
                                                 "qwen2-tiny"};

inline constexpr const char* kGoldenMeshes[] = {"cp=2",
                                                "cp=2,cp_order=plain",
                                                "cp=4",
                                                "cp=4,cp_order=plain",
                                                "cp=8",
                                                "cp=2,cp_kind=ulysses",
                                                "cp=4,cp_kind=ulysses",
                                                "cp=4,cp_kind=2x2",
                                                "cp=8,cp_kind=4x2,cp_order=plain",
                                                "cp=2,overlap=off,micro=2",
                                                "dp=2,cp=2",
                                                "dp=2,cp=2,zero=1",
                                                "dp=2,cp=2,zero=2,micro=2",
                                                "dp=2,cp=2,zero=3",
                                                "dp=3,cp=2,zero=3,shard=2,uneven=on",
                                                "cp=2,tp=2",
                                                "cp=2,cp_kind=ulysses,tp=2",
                                                "cp=4,tp=2,sp=off",
                                                "pp=2,cp=2,micro=4",
                                                "pp=2,cp=2,micro=4,schedule=zb-v",
                                                "pp=2,cp=2,micro=2,schedule=interleaved",
                                                "dp=2,pp=2,cp=2,micro=2,schedule=zb-h1,zero=3",
                                                "dp=2,pp=2,tp=2,micro=2,schedule=afab,zero=2",
                                                "dp=2,cp=2,tp=2,zero=3",
                                                "pp=2,cp=2,tp=2,micro=2",
                                                "dp=2,pp=2,cp=2,tp=2,micro=2",
                                                "dp=2,pp=2,cp=2,cp_kind=ulysses,tp=2,micro=4,schedule=zb-h1,zero=3",
                                                "pp=2,micro=4,schedule=zb-v"};
static_assert(std::size(kGoldenMeshes) >= 25);

// As `verify --reference FOLDER --layout L` does it: logits, gradients, losses, norms and weights against Hugging
// Face's.
inline void expect_golden(const std::string& folder, const char* layout) {
  const ReferenceReport report = verify_reference(
      std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests" / "golden" / folder, {.layout = parse_layout(layout)});
  EXPECT_GT(report.items.size(), 40U);
  for (const ReferenceItem& item : report.items)
    EXPECT_TRUE(item.ok()) << folder << ", " << layout << ": " << item.name << " is off by " << item.error;
}

}  // namespace lockstep::tests
