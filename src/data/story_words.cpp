#include "data/story_words.h"

namespace lockstep {

namespace {

using V = StoryVariable;

constexpr StoryForms she(std::string_view name) { return {name, "she", "her", "her"}; }
constexpr StoryForms he(std::string_view name) { return {name, "he", "him", "his"}; }
constexpr StoryForms one(std::string_view noun) { return {noun, "a", "it", "it", "was", "is", "this"}; }
constexpr StoryForms many(std::string_view noun) { return {noun, "some", "they", "them", "were", "are", "these"}; }

constexpr StoryForms kHeroes[] = {she("Mia"), he("Ben"),  she("Anna"), he("Leo"),   she("Ruby"),
                                  he("Tom"),  she("Ivy"), he("Max"),   she("Ella"), he("Oscar")};
constexpr StoryForms kFriends[] = {she("Nora"), he("Finn"), she("Clara"), he("Hugo"),
                                   she("Lily"), he("Jack"), she("Rosa"),  he("Felix")};
constexpr StoryForms kTraits[] = {{"a little"}, {"an old"},    {"a brave"}, {"a clever"},
                                  {"a shy"},    {"an honest"}, {"a kind"},  {"a hungry"}};
constexpr StoryForms kAnimals[] = {{"fox"}, {"bear"}, {"rabbit"}, {"mouse"}, {"cat"}, {"duck"}, {"frog"}, {"hedgehog"}};
constexpr StoryForms kHomes[] = {
    {"a small house by the river"}, {"a hollow tree in the forest"}, {"a quiet village"},
    {"a cave on the hill"},         {"a garden behind the mill"},    {"a boat on the lake"}};
constexpr StoryForms kTimes[] = {{"one day"}, {"one morning"}, {"one evening"}, {"one rainy afternoon"}};
constexpr StoryForms kThings[] = {one("ball"),  one("kite"),   one("hat"),      one("drum"),   one("basket"),
                                  one("flute"), many("boots"), many("mittens"), many("bells"), many("ribbons")};
constexpr StoryForms kColours[] = {{"red"}, {"blue"}, {"green"}, {"yellow"}, {"golden"}, {"silver"}};
constexpr StoryForms kPlaces[] = {{"in the garden"}, {"under the bridge"}, {"behind the barn"}, {"near the pond"},
                                  {"in the forest"}, {"on the hill"},      {"beside the well"}, {"under the old oak"}};
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
    "Once upon a time there was {a trait} {animal} named {hero}.",
    "Long ago there lived {a trait} {animal} called {hero}.",
    "{hero} was {a trait} {animal}.",
};
constexpr std::string_view kWhere[] = {
    "{He} lived in {home} with {his} friend {friend}.",
    "{hero} and {his} friend {friend} lived in {home}.",
    "{His} home was {home}, and {his} best friend was {friend}.",
};

constexpr std::string_view kLoses[] = {
    "{One day} {he} lost {his} {red} {thing}.",
    "{One day} {hero} could not find {his} {red} {thing}.",
};
constexpr std::string_view kAsksWhere[] = {
    "\"Where {is} my {thing}?\" asked {hero}.",
    "\"My {thing} {is} gone!\" said {hero}.",
};
constexpr std::string_view kLooks[] = {
    "{He} looked {somewhere}, but {it} {was} not there.",
    "{He} went to look {somewhere}, but could not see {them}.",
};
constexpr std::string_view kHelp[] = {
    "Then {friend} came to help {him}.",
    "\"I will help you,\" said {friend}.",
};
constexpr std::string_view kFinds[] = {
    "At last they found {them} {somewhere}.",
    "Soon {friend} saw {them} {somewhere}.",
    "And there {it} {was}, {somewhere}!",
};

constexpr std::string_view kDiscovers[] = {
    "{One day} {he} found {a} {red} {thing} {somewhere}.",
    "{One day} {hero} saw {a} {red} {thing} {somewhere}.",
};
constexpr std::string_view kAsksWhose[] = {
    "\"Whose {thing} {is} {this}?\" asked {hero}.",
    "{He} wondered whose {thing} {it} {was}.",
};
constexpr std::string_view kWaits[] = {
    "{He} took {them} home and waited, but nobody came.",
    "{He} asked everybody {somewhere}, but nobody knew.",
};
constexpr std::string_view kOwner[] = {
    "Then {friend} said, \"{It} {is} mine!\"",
    "\"{It} {is} mine, I lost {them} {somewhere},\" said {friend}.",
};
constexpr std::string_view kGivesBack[] = {
    "{hero} gave {them} back, and {friend} was {happy}.",
    "So {friend} got {them} back and thanked {him}.",
};

constexpr std::string_view kBirthday[] = {
    "{One day} it was the birthday of {friend}.",
    "{One day} {hero} wanted to make a present for {friend}.",
};
constexpr std::string_view kMakes[] = {
    "{hero} had no money, so {he} made {a} {red} {thing}.",
    "{hero} sat down {somewhere} and made {a} {red} {thing}.",
};
constexpr std::string_view kWorks[] = {
    "{He} worked {somewhere} until {it} {was} ready.",
    "It took {him} all day, but {it} {was} beautiful.",
};
constexpr std::string_view kGives[] = {
    "\"{It} {is} for you,\" said {hero}.",
    "\"Look, {this} {is} yours!\" said {hero}.",
};
constexpr std::string_view kLikes[] = {
    "{friend} liked {them} so much that {friend he} danced {somewhere}.",
    "{friend} was {happy}, because {friend he} loved the {thing}.",
};

constexpr std::string_view kEnds[] = {
    "From that day on they were the best of friends.",         "They ate {cake} together and went to sleep.",
    "And {hero} was {happy} for the rest of the day.",         "The two friends laughed until the stars came out.",
    "After that {hero} and {friend} did everything together.",
};

constexpr StoryPart kLost[] = {{.patterns = kWho},
                               {.patterns = kWhere},
                               {.patterns = kLoses, .begins_line = true},
                               {.patterns = kAsksWhere},
                               {.patterns = kLooks, .most = 2},
                               {.patterns = kHelp},
                               {.patterns = kFinds},
                               {.patterns = kEnds, .begins_line = true}};
constexpr StoryPart kFound[] = {{.patterns = kWho},
                                {.patterns = kWhere},
                                {.patterns = kDiscovers, .begins_line = true},
                                {.patterns = kAsksWhose},
                                {.patterns = kWaits, .most = 2},
                                {.patterns = kOwner},
                                {.patterns = kGivesBack},
                                {.patterns = kEnds, .begins_line = true}};
constexpr StoryPart kPresent[] = {{.patterns = kWho},
                                  {.patterns = kWhere},
                                  {.patterns = kBirthday, .begins_line = true},
                                  {.patterns = kMakes},
                                  {.patterns = kWorks},
                                  {.patterns = kGives},
                                  {.patterns = kLikes},
                                  {.patterns = kEnds, .begins_line = true}};

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
