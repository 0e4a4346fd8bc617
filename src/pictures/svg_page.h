// A page of SVG: what every drawing is written with.
//
// A page needs no other file, has the same bytes for the same calls, and grows to hold what is drawn on it. Colours are
// readable on light and dark: the paper, ink and lines follow the reader's colour scheme, and fills are light enough
// for black text. Coordinates are pixels from the top left corner; text is placed by its baseline.
//
// Classes of text: ink, soft (grey), in (small and centred, on a fill), title; mid and end anchor it by its middle or
// its end; bold and small do what they say. Classes of shapes: rest (a pale ground), frame (an outline), mark (a thin
// grey line), wire (a line to be followed), step (a filled piece with a hair of space around it).
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

namespace fills {
inline constexpr std::string_view blue = "#6ea8fe", green = "#5fc982", teal = "#4cc9d0", orange = "#f2b35e",
                                  pink = "#f291b9", purple = "#b9a3f5", grey = "#b4bec9", yellow = "#efd667";
// For a set of things that are told apart, as ranks are.
inline constexpr std::string_view kinds[] = {blue, orange, green, purple, pink, teal, yellow, grey};
}  // namespace fills

// "#rrggbb" mixed with white: 0 leaves it, 1 is white.
std::string lighter(std::string_view colour, double white);
// At most how wide a text of this size may become; fonts differ.
double text_width(std::string_view text, double size);

// Text as SVG and HTML hold it, in an element or a quoted attribute; characters that XML cannot hold are left out.
std::string markup_text(std::string_view text);

class SvgPage {
 public:
  static constexpr double kMargin = 16;

  struct Box {
    double x, y, width, height;
  };

  double y = 0;           // how far down the page is used: headings and keys are put below it
  double longest = 1400;  // a line of a heading

  // Below what is there, on several lines where one would be too long: nothing is cut off.
  void title(std::string_view text) { lines(text, "ink title", 28, 16); }
  void subtitle(std::string_view text) { lines(text, "soft", 20, 12); }
  void caption(std::string_view text) { lines(text, "ink bold", 28, 12); }

  void text(double x, double y, std::string_view style, std::string_view text);
  // `tip` is shown by a reader's program that points at it.
  void rect(const Box& box, std::string_view style, std::string_view fill = {}, std::string_view tip = {});
  // A filled rectangle with a text in its middle, left out where it does not fit.
  void cell(const Box& box, std::string_view fill, std::string_view text, std::string_view tip = {});
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  void arrow(double x1, double y1, double x2, double y2);
  void polygon(std::string_view points, std::string_view style, std::string_view fill);  // "x,y x,y …"

  void polyline(std::string_view points, std::string_view colour);  // "x,y x,y …", within what reach() was told
  void stroke(std::string_view points, std::string_view style);     // the same by a class
  void dot(double x, double y, double radius, std::string_view style, std::string_view tip = {});

  // Classes of this page alone, as CSS: on light paper, and what of them differs on dark paper.
  void add_style(std::string_view light, std::string_view dark) { light_ += light, dark_ += dark; }

  // A row of keys, each a patch of colour and what it stands for.
  void begin_keys(double x);
  void key(std::string_view fill, std::string_view text);  // without a text, the next patch follows at once
  void remark(std::string_view text);                      // in the same row

  // At least so wide and high with what is drawn.
  void reach(double x, double y);
  // The file.
  std::string str() const;

 private:
  void lines(std::string_view text, std::string_view style, double height, double size);

  std::string body_, light_, dark_;
  double right_ = 0, bottom_ = 0, key_x_ = 0;
};

}  // namespace lockstep
