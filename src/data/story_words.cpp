#include "data/story_words.h"

namespace lockstep {

namespace {

using V = StoryVariable;

constexpr StoryForms she(std::string_view name) { return {name, "she", "her", "her"}; }
constexpr StoryForms he(std::string_view name) { return {name, "he", "him", "his"}; }
constexpr StoryForms one(std::string_view noun) { return {noun, "a", "it", "it", "was", "is", "this"}; }
constexpr StoryForms many(std::string_view noun) { return {noun, "some", "they", "them", "were", "are", "these"}; }

constexpr StoryForms kHeroes[] = {she("Mia"), he("Ben"), she("Ivy"), he("Leo"), she("Ruby"), he("Tom")};
constexpr StoryForms kFriends[] = {she("Nora"), he("Finn"), she("Clara"), he("Hugo"), she("Lily"), he("Felix")};
constexpr StoryForms kTraits[] = {{"a little"}, {"an old"}, {"a brave"}, {"a clever"}, {"a shy"}, {"an honest"}};
constexpr StoryForms kAnimals[] = {{"fox"}, {"bear"}, {"rabbit"}, {"mouse"}, {"duck"}, {"frog"}};
constexpr StoryForms kHomes[] = {{"a small house"}, {"a hollow tree"}, {"a quiet village"},
                                 {"a cave"},        {"a garden"},      {"a boat"}};
constexpr StoryForms kTimes[] = {{"one day"}, {"one morning"}, {"one evening"}, {"one night"}};
constexpr StoryForms kThings[] = {one("ball"),   one("kite"),     one("hat"),    one("drum"),
                                  many("boots"), many("mittens"), many("bells"), many("ribbons")};
constexpr StoryForms kColours[] = {{"red"}, {"blue"}, {"green"}, {"golden"}, {"silver"}};
constexpr StoryForms kPlaces[] = {{"in the garden"}, {"under the bridge"}, {"behind the barn"},
                                  {"near the pond"}, {"in the forest"},    {"on the hill"}};
constexpr StoryForms kTreats[] = {{"honey cake"}, {"warm soup"}, {"berry pie"}, {"fresh bread"}};
constexpr StoryForms kMoods[] = {{"happy"}, {"glad"}, {"proud"}, {"merry"}};

constexpr StorySlot kSlots[] = {
    {"hero", V::hero, 0},      {"he", V::hero, 1},           {"him", V::hero, 2},        {"his", V::hero, 3},
    {"friend", V::friend_, 0}, {"friend he", V::friend_, 1}, {"a trait", V::trait, 0},   {"animal", V::animal, 0},
    {"home", V::home, 0},      {"one day", V::time, 0},      {"thing", V::thing, 0},     {"a", V::thing, 1},
    {"it", V::thing, 2},       {"them", V::thing, 3},        {"was", V::thing, 4},       {"is", V::thing, 5},
    {"this", V::thing, 6},     {"red", V::colour, 0},        {"somewhere", V::place, 0}, {"cake", V::treat, 0},
    {"happy", V::mood, 0},
};

constexpr std::string_view kWho[] = {
    "Once there was {a trait} {animal} called {hero}.",
    "Long ago lived {a trait} {animal} named {hero}.",
    "{hero} was {a trait} {animal}.",
};
constexpr std::string_view kFriend[] = {
    "{His} best friend was {friend}.",
    "{He} had a friend called {friend}.",
    "{hero} and {friend} lived in {home}.",
};

constexpr std::string_view kLoses[] = {
    "{One day} {he} lost {his} {red} {thing}.",
    "{One day} {hero} missed {his} {red} {thing}.",
};
constexpr std::string_view kAsksWhere[] = {
    "\"Where {is} my {thing}?\" asked {hero}.",
    "\"My {thing} {is} gone!\" said {hero}.",
};
constexpr std::string_view kLooks[] = {
    "{He} looked {somewhere}, but {it} {was} not there.",
    "{He} could not see {them} {somewhere}.",
};
constexpr std::string_view kFinds[] = {
    "Then {friend} found {them} {somewhere}.",
    "But {friend} saw {them} {somewhere}.",
};

constexpr std::string_view kDiscovers[] = {
    "{One day} {he} found {a} {red} {thing} {somewhere}.",
    "{One day} {hero} saw {a} {red} {thing} {somewhere}.",
};
constexpr std::string_view kAsksWhose[] = {
    "\"Whose {thing} {is} {this}?\" asked {hero}.",
    "{He} wondered whose {thing} {it} {was}.",
};
constexpr std::string_view kOwner[] = {
    "\"{It} {is} mine!\" said {friend}.",
    "Then {friend} said that {it} {was} lost.",
};
constexpr std::string_view kGivesBack[] = {
    "So {hero} gave {them} back.",
    "So {friend} took {them} and thanked {him}.",
};

constexpr std::string_view kBirthday[] = {
    "{One day} it was the birthday of {friend}.",
    "{One day} {he} wanted to make a present.",
};
constexpr std::string_view kMakes[] = {
    "{hero} sat down and made {a} {red} {thing}.",
    "So {he} made {a} {red} {thing} {somewhere}.",
};
constexpr std::string_view kGives[] = {
    "\"{It} {is} for you,\" said {hero}.",
    "\"Look what I made!\" said {hero}.",
};
constexpr std::string_view kLikes[] = {
    "{friend} loved {them} and danced {somewhere}.",
    "{friend} was {happy}, for {friend he} loved {them}.",
};

constexpr std::string_view kEnds[] = {
    "They ate {cake} together.",
    "And {hero} was {happy}.",
    "Then they went to sleep.",
    "They were best friends.",
    "{friend} and {hero} laughed all day.",
};

constexpr StoryPart kLost[] = {
    {.patterns = kWho},   {.patterns = kFriend}, {.patterns = kLoses, .begins_line = true}, {.patterns = kAsksWhere},
    {.patterns = kLooks}, {.patterns = kFinds},  {.patterns = kEnds, .begins_line = true}};
constexpr StoryPart kFound[] = {{.patterns = kWho},
                                {.patterns = kFriend},
                                {.patterns = kDiscovers, .begins_line = true},
                                {.patterns = kAsksWhose},
                                {.patterns = kOwner},
                                {.patterns = kGivesBack},
                                {.patterns = kEnds, .begins_line = true}};
constexpr StoryPart kPresent[] = {
    {.patterns = kWho},   {.patterns = kFriend}, {.patterns = kBirthday, .begins_line = true}, {.patterns = kMakes},
    {.patterns = kGives}, {.patterns = kLikes},  {.patterns = kEnds, .begins_line = true}};

}  // namespace

std::span<const StoryForms> story_values(StoryVariable variable) {
  switch (variable) {
    case V::hero:
      return kHeroes;
    case V::friend_:
      return kFriends;
    case V::trait:
      return kTraits;
    case V::animal:
      return kAnimals;
    case V::home:
      return kHomes;
    case V::time:
      return kTimes;
    case V::thing:
      return kThings;
    case V::colour:
      return kColours;
    case V::place:
      return kPlaces;
    case V::treat:
      return kTreats;
    case V::mood:
      return kMoods;
  }
  return {};
}

constinit const std::span<const StorySlot> kStorySlots = kSlots;
constinit const std::array<std::span<const StoryPart>, 3> kStoryPlots = {kLost, kFound, kPresent};

}  // namespace lockstep
