"""Words that tell a field, a kind of task or a way of reasoning.

Written by hand, so that they mean the same for every trained model and for subjects no model has seen.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DOMAINS: dict[str, str] = {
    "maths": """
        algebra angle arithmetic calculus circle circumference coefficient complex converge convergent
        cosine cube denominator derivative determinant diameter differentiable digit digits divided
        divisible divisor ellipse equation equations exponent factor factorial fraction function
        geometry graph hypotenuse inequality infinite integer integers integral inverse isomorphic
        limit linear log logarithm matrices matrix modulo multiple multiplied numerator parabola
        perimeter permutation plane polygon polynomial positive prime product quadratic quotient
        radius rational rectangle remainder ring root roots sequence series sine square sqrt subgroup
        subset subtract sum tangent theorem triangle variable vector vertex vertices whole
    """,
    "statistics": """
        average bayes bell binomial chi confidence correlation covariance distributed distribution
        estimator expected hypothesis interval likelihood mean median percentile poisson population
        probability probabilities quartile random regression sample sampling skewed standard
        stationary statistic statistical statistics variance deviation anova autocorrelation
        heteroscedasticity residual residuals lag
    """,
    "physics": """
        acceleration atom amplitude beam capacitor charge coil collision conductor coulomb current
        density diffraction dipole displacement electric electron electrons energy entropy field force
        frequency friction gamma gas gravitational gravity heat ideal inductance inertia joule kelvin
        kinetic laser lens light magnetic mass mirror momentum neutron newton nuclear optical orbit
        oscillator particle pendulum photon photons potential pressure proton pulley quantum radiation
        reflection refraction relativity resistance resistor speed spring temperature thermal
        thermodynamic torque velocity vibration voltage volt wave wavelength weight work
    """,
    "chemistry": """
        acid acids alcohol alkane alkene ammonia anion aqueous aromatic base benzene bond bonds buffer
        carbon carbonate catalyst cation chemical chemistry chloride compound concentration covalent
        crystal electrode electrolysis electronegativity element enthalpy equilibrium ethanol
        exothermic hydrogen hydroxide hybridization hydrochloric ion ionic ionization isotope isotopes
        ketone ligand melting metal methane molar molarity mole molecular molecule molecules moles
        nitrogen nmr orbital orbitals organic oxidation oxide oxygen periodic ph polymer precipitate
        reactant reaction reactions reagent redox salt sodium solubility solute solution solvent
        spectrum stoichiometric sulfate sulfuric titration valence vapor
    """,
    "biology": """
        adaptation allele alleles amino bacteria biology cell cells chlorophyll chloroplast chromosome
        chromosomes cytoplasm dna dominant ecological ecosystem embryo enzyme enzymes eukaryotic
        evolution fitness fungi gene genes genetic genome genotype habitat heterozygous homologous
        insect kingdom leaf leaves mammals meiosis membrane metabolism microbial mitochondria mitosis
        mutation mutations nucleus nucleotide offspring organism organisms phenotype photosynthesis
        phylogenetic plant plants pollen predator prokaryotic protein proteins recessive replication
        ribosome rna root seed selection species stem transcription vertebrates
    """,
    "medicine": """
        abdominal acute anatomy anemia antibiotic antibody artery asthma blood bone brain breast
        cancer cardiac chronic clinical diabetes diagnosis disease disorder doctor dose drug edema
        emergency fever fracture gland glucose heart hepatic hiv hormone hospital hypertension immune
        infection inflammation injury insulin intravenous kidney lesion liver lung lymph medical
        medication medicine muscle nausea nerve nurse nurses pain patient patients pelvic physical
        physician pregnancy pregnant pulmonary receptor renal respiratory sclerosis serum skin spinal
        surgery surgical symptoms syndrome therapy thyroid tissue treatment tumor ulcer urine vaccine
        vein viral virus viruses vitamin year-old
    """,
    "nutrition": """
        calorie calories carbohydrate carbohydrates cholesterol diet dietary digestion fat fats fatty
        fibre fiber food foods lipid meal minerals nutrient nutrients nutrition obesity protein starch
        sugar vitamins
    """,
    "law": """
        admissible affidavit agreement appeal arrest attorney breach clause common congress
        constitution constitutional contract contractual conviction counsel court courts crime
        criminal damages defendant defense deed doctrine due easement enforceable estate evidence
        federal felony fourth guilty hearsay homicide judge judgment judicial jurisdiction
        jurisprudence jury landlord law laws lawsuit lawyer legal legislation legislature liability
        liable mortgage motion murder negligence negligent objection offense ordinance owner parol
        plaintiff police prosecution prosecutor provision robbery ruling seller buyer statute
        statutory sued suit supreme tenant testimony tort treaty trial verdict warrant witness
    """,
    "history": """
        ancient archaeological archaeologists army battle british bronze century civilization colonial
        colonies colony communist crusades declaration dynasty egyptian emperor empire enlightenment
        europe european feudal france french german germany greek hominin homo imperial independence
        industrial king kingdom lincoln medieval middle military monarchy napoleon neolithic nobles
        ottoman paleolithic peasants prehistoric president queen rebellion reform reformation
        renaissance republic revolution revolutionary roman rome russia russian slavery slaves soviet
        stalin treaty troops tribes war wars world
    """,
    "geography": """
        africa african agriculture area asia border city cities climate coast continent country
        countries desert global island land latin latitude map migration mountain mountains nation
        nations north ocean pacific population rainfall region regions river rivers rural sea south
        southern temperate territory tropical urban west western
    """,
    "politics": """
        administration alliance amendment ballot bill cabinet campaign candidate candidates citizens
        civil cold coalition conservative democracy democratic democrats diplomacy diplomatic election
        elections electoral executive federalism foreign government governments house ideology
        international interstate legislative liberal nato nuclear parliament party policy political
        politics power powers presidential republican rights security senate sovereignty state states
        terrorism treaties veto voters voting
    """,
    "economics": """
        aggregate bank banks bond capital competition competitive consumer consumers consumption cost
        costs currency curve deficit demand depreciation dollar economic economics economies economy
        elasticity employment equilibrium exchange export exports firm firms fiscal gdp goods
        government gross growth income industry inflation interest investment keynesian labor
        macroeconomic marginal market microeconomic monetary money monopolist monopoly oligopoly
        output price prices producer profit quantity quota real recession reserve revenue scarcity
        shortage spending subsidy supply surplus tariff tax taxes trade unemployment unit utility wage
        wages
    """,
    "business": """
        accounting accounts advertising annual asset assets audit auditor balance board brand budget
        business buyer cash ceo communication company corporate corporation corporations credit
        customer customers debt discount dividend earnings employee employees entrepreneur equity
        ethical expense expenses financial fiscal gain inventory invoice ledger liabilities loan
        management manager managers manufacturing marketing organization organizational partnership
        payable payment portfolio preferred product products profit public purchase receivable
        relations retail revenue sales salary shareholders shares stakeholders stock strategic
        strategy supplier taxable venture warehouse
    """,
    "psychology": """
        adolescent adolescents anxiety attachment attention attitude autism behavior behavioral
        behaviors bias bipolar child childhood children client clients cognition cognitive
        conditioning counseling counselor delinquency depression depressive development emotional
        emotions erikson freud gender group intelligence iq learned learning memory mental motivation
        neurons operant parents perception personality piaget psychological psychologist psychologists
        psychology psychotherapy reinforcement schizophrenia self sensory sex sexual skinner sleep
        social stereotype stimulus stress student teacher test therapist validity
    """,
    "philosophy": """
        aristotle argument arguments autonomy belief beliefs conclusion consciousness consequentialism
        descartes duty ethics evil existence fallacy fallacies free god good hume kant kantian
        knowledge logic metaphysical mill moore moral morality morally nietzsche nozick objective
        philosopher philosophers philosophy plato pleasure premise premises principle rawls reason
        relativism singer soul stoic subjective syllogism utilitarian utilitarianism virtue wrong
    """,
    "logic": """
        antecedent biconditional conjunction consequent contradictory counterexample disjunction
        equivalent implies invalid necessary negation predicate proposition propositional quantifier
        sentential sufficient tautology translation truth valid
    """,
    "religion": """
        bible buddha buddhism buddhist caste catholic christ christian christianity christians church
        confucian divine faith gospel guru hindu hinduism holy islam islamic jain jesus jewish jews
        judaism mosque muhammad muslim muslims pope prayer priest prophet quran religion religions
        religious ritual sacred saint scripture shinto sikh soul temple theology torah worship
    """,
    "society": """
        abortion culture cultural discrimination education ethnic family feminism feminist gender
        inequality marriage marxist media minority norms poverty race racial research school schools
        social sociological sociologist sociologists sociology stratification survey weber durkheim
        welfare women
    """,
    "computing": """
        algorithm algorithms array bit bits boolean buffer byte bytes cache classifier compiler
        computer computers cpu cryptographic cryptography cyber database data debug decryption disk
        dataset encryption execute file firewall gradient hash http input internet java javascript
        kernel keyword linux list loop machine malware memory method neural network networks node
        nodes object output overfitting packet password pointer processor program programming protocol
        python query queue recursion recursive register router runtime server software sort sql stack
        storage string supervised tcp thread training tree unix variable variables virtual
        vulnerability xss
    """,
    "engineering": """
        aerodynamic alloy amplifier armature battery bandwidth beam bearing boiler brake bridge cable
        circuit column combustion compressor concrete conduction coolant cylinder dc ac diode drag
        efficiency engine exhaust fluid flow fuel furnace gear generator horsepower hp hydraulic
        impedance insulation kva kw laminar load machine material mechanical modulus motor nozzle pipe
        piston power pump rpm rotor shaft signal stator steam steel strain stress tank tensile
        thermocouple transistor transformer turbine valve viscosity wire welding winding windings
    """,
    "astronomy": """
        asteroid astronomers astronomical comet comets cosmic crater earth galaxy galaxies jupiter
        lunar mars martian mercury meteor moon moons nebula neptune orbit orbital planet planets
        planetary pluto saturn solar space spacecraft star stars stellar sun telescope telescopes
        universe uranus venus
    """,
    "arts": """
        actor actress album artist author band book character comedy dance director episode fictional
        film guitar lyrics movie music musical musician novel opera painter painting played player
        poem poet poetry sang scene season series shakespeare sings singer song starring story
        symphony theater theatre tv wrote
    """,
    "sport": """
        athlete ball baseball basketball batting champion championship coach cricket cup football game
        games goal league match nba nfl olympic olympics quarterback soccer sport sports super team
        teams tennis tournament won
    """,
    "shopping": """
        apples bag bags bought box boxes buy buys candies candy cents cookies cost costs cup cups
        dozen each earn earns eggs gallons gave hour hours minutes money more miles paid pair pay per
        pounds remaining save saved savings sell sells shirts sold spend spends spent store tickets
        total twice week weeks
    """,
}

# Words that ask for several steps, for judgement among statements, or for care with a negation.
REASONING = _words("""
        because calculate compare conclude consequently consider contrast deduce demonstrate derive
        determine discuss either estimate evaluate except explain find given hence how if implies
        infer justify least most neither optimal prove show simplify solve steps suppose then
        therefore thus unless until when whether why
    """)
NEGATIONS = _words("not no never none neither nor cannot without except least false incorrect untrue isn't")
COMPARISONS = _words("""
        more less than fewer greater larger smaller half twice double triple thrice times percent
        percentage ratio third quarter remaining rest left each every per total altogether combined
        difference increase decrease faster slower longer shorter older younger
    """)
HEDGES = _words("best most likely probably primarily usually generally typically mainly often mostly")
NUMBER_WORDS = _words(
    """one two three four five six seven eight nine ten eleven twelve dozen twenty thirty forty fifty hundred
    thousand"""
)
QUESTION_WORDS = ("what", "which", "who", "when", "where", "why", "how")
CREATE = _words("""
        write create compose draft generate design implement build make develop translate summarize
        summarise rewrite paraphrase edit improve refactor fix debug convert outline brainstorm
    """)
CODE_WORDS = _words("code function python javascript java sql regex bug script program api bash html")
CHAT = _words("hi hello hey thanks thank please you your i'm my me yes ok okay")
# The commonest words of some languages: enough to tell that a query is not English.
FUNCTION_WORDS: dict[str, frozenset[str]] = {
    "en": _words("the of and to in is a that it for was on are as with what which his how be this"),
    "fr": _words("le la les des est une dans que qui pour pas sur avec sont quel quelle du aux"),
    "de": _words("der die das und ist nicht ein eine mit den von zu wie auf für wird sind dem"),
    "es": _words("el los las una por con para como del se qué es en cuál son su más lo"),
    "it": _words("il gli che di è una per con del della sono come nel qual quale dei"),
    "pt": _words("os uma não com para como qual são em da do dos das mais é ao"),
    "nl": _words("het een van en niet zijn voor met wat hoe dat op aan er wordt"),
}


def _by_word() -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for number, words in enumerate(DOMAINS.values()):
        for word in words.split():
            found.setdefault(word, []).append(number)
    return {word: tuple(numbers) for word, numbers in found.items()}


DOMAIN_NAMES: tuple[str, ...] = tuple(DOMAINS)
DOMAINS_OF: dict[str, tuple[int, ...]] = _by_word()  # a word of two fields counts half for each
