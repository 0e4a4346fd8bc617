// The presets inside the program are the files of configs/models/, all of them and as they are now.
#include "spec/model/presets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "spec/model/model_toml.h"
#include "support/model_file.h"

namespace lockstep {
namespace {

TEST(Presets, AreTheFilesOnDisk) {
  std::vector<std::string> on_disk;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "configs/models")) {
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    on_disk.push_back(name);
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const auto models = embedded_models();
    const auto inside = std::find_if(models.begin(), models.end(), [&](const auto& file) { return file.name == name; });
    ASSERT_NE(inside, models.end());
    EXPECT_EQ(inside->text, text.str());
    EXPECT_EQ(preset(name), tests::read_model_toml(entry.path()));
  }
  std::sort(on_disk.begin(), on_disk.end());
  const auto names = preset_names();
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.end()), on_disk) << "sorted, and no other";
}

TEST(Presets, AnUnknownNameIsNone) {
  for (const char* name : {"", "llama", "llama-5m.toml", "LLAMA-5M"}) EXPECT_EQ(preset(name), std::nullopt) << name;
}

}  // namespace
}  // namespace lockstep
