// docs/pictures holds what `lockstep draw` draws now: tools/draw_docs writes it anew.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "cli/drawings.h"
#include "svg_checks.h"

namespace lockstep::tests {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "docs" / "pictures";

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(DocsPictures, AreCurrent) {
  for (const DrawingEntry& entry : drawings()) {
    const std::filesystem::path file = kFolder / (std::string(entry.name) + ".svg");
    // Not EXPECT_EQ, which would print them.
    EXPECT_TRUE(content(file) == entry.draw()) << file << " is not what the program draws: run tools/draw_docs";
  }
}

TEST(DocsPictures, AreAllOfThem) {
  std::set<std::string> there, drawn;
  for (const auto& file : std::filesystem::directory_iterator(kFolder))
    if (file.path().extension() != ".png") there.insert(file.path().filename());  // those are of make test-web
  for (const DrawingEntry& entry : drawings()) drawn.insert(std::string(entry.name) + ".svg");
  EXPECT_EQ(there, drawn);
}

TEST(DocsPictures, AreWellFormedAndLegible) {
  for (const DrawingEntry& entry : drawings()) {
    SCOPED_TRACE(entry.name);
    const std::string svg = entry.draw();
    expect_well_formed(svg);
    expect_texts_within_page(svg);
    expect_no_text_over_another(svg);
    EXPECT_EQ(occurrences(svg, "prefers-color-scheme:dark"), 1u);
    EXPECT_EQ(occurrences(svg, "class=\"ink title\""), 1u);
  }
}

}  // namespace
}  // namespace lockstep::tests
