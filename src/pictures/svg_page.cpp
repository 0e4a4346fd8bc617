#include "pictures/svg_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace lockstep {

namespace {

constexpr std::string_view kLightStyle =
    "text{font-family:system-ui,'DejaVu Sans',sans-serif;font-size:12px}.paper{fill:#fff}.ink{fill:#1f2328}"
    ".title{font-size:16px;font-weight:600}.bold{font-weight:600}.small{font-size:10px}.soft{fill:#59636e}"
    ".mid{text-anchor:middle}.end{text-anchor:end}.mark{stroke:#d1d9e0}.rest{fill:#f0f2f5}"
    ".frame{fill:none;stroke:#8c959f}.wire{stroke:#59636e;stroke-width:1.3;fill:none}.tip{fill:#59636e}"
    ".step{stroke:#fff;stroke-width:.7}.in{fill:#10151c;font-size:11px;text-anchor:middle}";
constexpr std::string_view kDarkStyle =
    ".paper{fill:#0d1117}.ink{fill:#f0f6fc}.soft{fill:#9198a1}"
    ".mark{stroke:#3d444d}.rest{fill:#1b212a}.frame{stroke:#6e7781}.wire{stroke:#9198a1}.tip{fill:#9198a1}"
    ".step{stroke:#0d1117}";

// A coordinate to a hundredth of a pixel, without zeros that say nothing.
std::string at(double value) {
  const double rounded = std::round(value * 100) / 100;
  return fmt::format("{:g}", rounded == 0 ? 0 : rounded);
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }  // a UTF-8 character

// Where a line of the text that begins there ends: at its end, or at the last blank or comma that leaves it within
// what is allowed, or within a word that is longer than that.
std::size_t line_end(std::string_view text, std::size_t begin, double size, double longest) {
  std::size_t here = begin, good = begin;
  for (double width = 0; here < text.size();) {
    std::size_t next = here + 1;
    while (next < text.size() && continues(text[next])) ++next;
    width += text_width(text.substr(here, next - here), size);
    if (width > longest) return good > begin ? good : here;
    if (text[here] == ' ') good = here;
    if (text[here] == ',') good = next;
    here = next;
  }
  return here;
}

template <class... Args>
void print(std::string& out, fmt::format_string<Args...> format, Args&&... arguments) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(arguments)...);
}

}  // namespace

std::string markup_text(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) out += c;
    }
  return out;
}

std::string lighter(std::string_view colour, double white) {
  std::string out = "#";
  for (std::size_t i = 1; i < 7; i += 2) {
    int value = 0;
    std::from_chars(colour.data() + i, colour.data() + i + 2, value, 16);
    out += fmt::format("{:02x}", static_cast<int>(std::lround(value + (255 - value) * white)));
  }
  return out;
}

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char c : text) {
    if (continues(c)) continue;
    const bool wide = static_cast<unsigned char>(c) >= 0x80 || std::string_view("mwMW@%&").find(c) != std::string::npos;
    width += wide ? 1.0 : 0.575;
  }
  return width * size;
}

void SvgPage::reach(double x, double below) {
  right_ = std::max(right_, x);
  bottom_ = std::max(bottom_, below);
}

void SvgPage::text(double x, double baseline, std::string_view style, std::string_view words) {
  print(body_, "<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n", style, at(x), at(baseline), markup_text(words));
  const auto is = [&](std::string_view word) { return style.find(word) != std::string_view::npos; };
  const double width = text_width(words, is("title") ? 16 : is("small") ? 10 : 12);
  reach(x + (is("end") ? 0 : is("mid") || style == "in" ? width / 2 : width), baseline + 4);
}

void SvgPage::rect(const Box& box, std::string_view style, std::string_view fill, std::string_view tip) {
  print(body_, "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", style, at(box.x), at(box.y),
        at(box.width), at(box.height));
  if (!fill.empty()) print(body_, " fill=\"{}\"", fill);
  if (tip.empty())
    body_ += "/>\n";
  else
    print(body_, "><title>{}</title></rect>\n", markup_text(tip));
  reach(box.x + box.width, box.y + box.height);
}

void SvgPage::cell(const Box& box, std::string_view fill, std::string_view words, std::string_view tip) {
  rect(box, box.width < 4 ? "thin" : "step", fill, tip);  // its stroke would hide it
  if (!words.empty() && text_width(words, 11) + 3 <= box.width && box.height >= 11)
    text(box.x + box.width / 2, box.y + box.height / 2 + 4, "in", words);
}

void SvgPage::line(double x1, double y1, double x2, double y2, std::string_view style) {
  print(body_, "<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", style, at(x1), at(y1), at(x2), at(y2));
  reach(std::max(x1, x2), std::max(y1, y2));
}

void SvgPage::arrow(double x1, double y1, double x2, double y2) {
  const double length = std::hypot(x2 - x1, y2 - y1);
  if (!(length > 0)) return;
  const double dx = (x2 - x1) / length, dy = (y2 - y1) / length;
  const double back_x = x2 - 6 * dx, back_y = y2 - 6 * dy;
  line(x1, y1, back_x, back_y, "wire");
  polygon(fmt::format("{},{} {},{} {},{}", at(x2), at(y2), at(back_x - 3 * dy), at(back_y + 3 * dx),
                      at(back_x + 3 * dy), at(back_y - 3 * dx)),
          "tip", {});
}

void SvgPage::polygon(std::string_view points, std::string_view style, std::string_view fill) {
  print(body_, "<polygon class=\"{}\" points=\"{}\"", style, points);
  if (!fill.empty()) print(body_, " fill=\"{}\"", fill);
  body_ += "/>\n";
}

void SvgPage::polyline(std::string_view points, std::string_view colour) {
  print(body_, "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>\n", points, colour);
}

void SvgPage::stroke(std::string_view points, std::string_view style) {
  print(body_, "<polyline class=\"{}\" points=\"{}\"/>\n", style, points);
}

void SvgPage::dot(double x, double y, double radius, std::string_view style, std::string_view tip) {
  print(body_, "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"", style, at(x), at(y), at(radius));
  if (tip.empty())
    body_ += "/>\n";
  else
    print(body_, "><title>{}</title></circle>\n", markup_text(tip));
  reach(x + radius, y + radius);
}

void SvgPage::begin_keys(double x) {
  y += 18;
  key_x_ = x;
}

void SvgPage::key(std::string_view fill, std::string_view words) {
  rect({key_x_, y - 11, 14, 14}, "key", fill);
  key_x_ += words.empty() ? 16 : 20;
  if (!words.empty()) remark(words);
}

void SvgPage::remark(std::string_view words) {
  text(key_x_, y, "soft", words);
  key_x_ += text_width(words, 12) + 10;
}

void SvgPage::lines(std::string_view words, std::string_view style, double height, double size) {
  for (std::size_t from = 0; from < words.size();) {
    const std::size_t end = line_end(words, from, size, longest);
    y += height;
    text(kMargin, y, style, words.substr(from, end - from));
    from = std::min(words.find_first_not_of(' ', end), words.size());
  }
}

std::string SvgPage::str() const {
  const double width = std::ceil(right_ + kMargin), height = std::ceil(std::max(bottom_, y) + 12);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
             "{1:.0f}\" role=\"img\">\n<style>{2}{3}@media(prefers-color-scheme:dark){{{4}{5}}}</style>\n"
             "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
             width, height, kLightStyle, light_, kDarkStyle, dark_) +
         body_ + "</svg>\n";
}

}  // namespace lockstep
