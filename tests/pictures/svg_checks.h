// What every SVG that the program draws must be.
#pragma once
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace lockstep::tests {

// Every tag that is opened is closed, in order, and no text holds what would begin one.
inline void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)((?: [A-Za-z0-9:-]+=\"[^\"<]*\")*)(/?)>");
  std::size_t end = 0;
  for (std::sregex_iterator at(svg.begin(), svg.end(), tag), none; at != none; ++at) {
    const std::string between = svg.substr(end, static_cast<std::size_t>(at->position()) - end);
    EXPECT_EQ(between.find_first_of("<"), std::string::npos) << between;
    EXPECT_FALSE(std::regex_search(between, std::regex("&(?!(amp|lt|gt|quot);)"))) << between;
    end = static_cast<std::size_t>(at->position() + at->length());
    if ((*at)[1].length() > 0) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*at)[2]);
      open.pop_back();
    } else if ((*at)[4].length() == 0) {
      open.push_back((*at)[2]);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(svg.substr(end), "\n");
}

inline std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

// The texts of a picture, each with the box that it takes up, at least: fonts differ.
struct PlacedText {
  std::string text, style;
  double left, right, baseline;
};
inline std::vector<PlacedText> texts_of(const std::string& svg) {
  std::vector<PlacedText> all;
  const std::regex pattern("<text class=\"([^\"]*)\" x=\"([^\"]*)\" y=\"([^\"]*)\">([^<]*)</text>");
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), none; at != none; ++at) {
    const std::string style = (*at)[1], text = (*at)[4];
    const auto is = [&](const char* word) { return style.find(word) != std::string::npos; };
    double characters = 0;
    for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    const double size = is("title") ? 16 : is("small") ? 10 : is("in") && !is("ink") ? 11 : 12;
    const double width = characters * size * 0.5, x = std::stod((*at)[2]);
    const double left = is("end") ? x - width : is("mid") || style == "in" ? x - width / 2 : x;
    all.push_back({text, style, left, left + width, std::stod((*at)[3])});
  }
  return all;
}

inline void expect_no_text_over_another(const std::string& svg) {
  std::vector<PlacedText> all = texts_of(svg);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      const bool apart = all[i].right <= all[j].left || all[j].right <= all[i].left ||
                         std::abs(all[i].baseline - all[j].baseline) >= 8;
      EXPECT_TRUE(apart) << all[i].text << " | " << all[j].text << " at " << all[i].left << ", " << all[i].baseline;
    }
}

inline void expect_texts_within_page(const std::string& svg) {
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex("<svg[^>]* width=\"(\\d+)\" height=\"(\\d+)\"")));
  for (const PlacedText& text : texts_of(svg)) {
    EXPECT_GE(text.left, 0) << text.text;
    EXPECT_LE(text.right, std::stod(size[1])) << text.text;
    EXPECT_LE(text.baseline, std::stod(size[2])) << text.text;
  }
}

}  // namespace lockstep::tests
